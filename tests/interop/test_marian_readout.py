"""Links from a Marian folder: its weights at either step are those of `transformers`, and it may have a read-out."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

pytest.importorskip("transformers")

from marian_models import load_model, marian

import heedful
from heedful.errors import ModelError
from heedful.interop import write_marian
from heedful.interop.folder import write_readout
from heedful.trace.readout import Readout


@pytest.mark.parametrize("readout", [Readout(2, (3,)), Readout(2, (3,), "next"), Readout(1, step="next")], ids=str)
def test_as_transformers_sees_it(tmp_path: Path, readout: Readout) -> None:
    made = marian(tmp_path / "m", decoder_layers=2)
    write_readout(made.path, readout)
    translator = heedful.load(made.path)
    source, target = made.pairs[0]
    (trace,) = translator.reread([source], [target])
    batch = made.tokenizer(source, text_target=target, return_tensors="pt")
    labels = batch.pop("labels")
    begun = torch.cat([torch.tensor([[made.model.config.decoder_start_token_id]]), labels], dim=1)
    with torch.no_grad():
        seen = load_model(made.path)(**batch, decoder_input_ids=begun, output_attentions=True).cross_attentions
    rows = seen[readout.layer - 1][0][[head - 1 for head in readout.heads] or slice(None)].mean(0).numpy()
    np.testing.assert_allclose(trace.tokens(), rows[1:] if readout.step == "next" else rows[:-1], atol=1e-5)
    assert trace.readout == readout
    (found,) = translator.align([source], [target])
    assert len(found.target) == len(target.split())


def test_a_readout_goes_with_the_model(tmp_path: Path) -> None:
    made = marian(tmp_path / "m")
    assert heedful.load(made.path).readout == Readout(end="drop", marks="apart", even=True)
    readout = Readout(1, (2, 4), norms=True, end="drop")
    write_readout(made.path, readout)
    translator = heedful.load(made.path)
    assert translator.readout == readout
    translator.save(tmp_path / "ours")
    assert heedful.load(tmp_path / "ours").readout == readout
    write_marian(tmp_path / "theirs", translator.parts)
    assert heedful.load(tmp_path / "theirs").readout == readout
    (made.path / "readout.json").write_text('{"layer": 2}')
    with pytest.raises(ModelError, match="there is no layer 2; choose one from 1 to 1"):
        heedful.load(made.path)

"""benchmarks/ctranslate2_engine.py: CTranslate2's weights, read back, are those of the Marian model they came from."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from small_runs import benchmark

from heedful.config import Config
from heedful.interop import marian
from heedful.interop.ctranslate2 import read_weights, write_ctranslate2
from heedful.interop.folder import ModelParts
from heedful.models import build
from heedful.text import Codec

pytest.importorskip("ctranslate2")


def test_weights_come_back_under_the_names_of_marian(tmp_path):
    tool = benchmark("ctranslate2_engine")
    sizes = {"width": 16, "heads": 2, "inner": 24, "layers": 2, "decoder_layers": 1}
    model = {"family": "transformer", "norm": "post", "tied": "all", "bias": True, "activation": "silu", **sizes}
    config = Config.build({"model": model, "text": {"kind": "word", "size": 20, "joint": True}})
    codec = Codec.train(["a b c d"], config.text)
    torch.manual_seed(1)
    parts = ModelParts(config, build(config.model, len(codec), len(codec)).eval(), codec, codec)
    write_ctranslate2(tmp_path / "m", parts)
    variables = read_weights(tmp_path / "m" / "model.bin")
    weights = tool.marian_weights(variables)
    own = parts.model.state_dict()
    for ours, names in marian.layers(config.model):
        np.testing.assert_array_equal(np.concatenate([weights.pop(name) for name in names]), own[ours].numpy())
    table = weights.pop("model.shared.weight")
    np.testing.assert_array_equal(table[:-1], own["embedding.weight"].numpy())
    assert not table[-1].any()  # <pad>
    assert weights.pop(marian.BIAS).shape == (1, len(codec) + 1)
    assert not weights
    settings = marian.MarianConfig.build(tool.settings(variables))
    assert (settings.encoder_layers, settings.decoder_layers, settings.d_model) == (2, 1, 16)
    assert settings.vocab_size == len(codec) + 1
    assert replace(config.model, **settings.model_settings()).depth == 1

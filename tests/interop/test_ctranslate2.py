"""heedful/interop/ctranslate2.py: a converted model gives the log-probabilities and the words of the original."""

from __future__ import annotations

import io
import itertools
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from exported_models import parts_of
from random_translators import random_parts
from tiny_captioner import captioner

from heedful.decoding import Decoding, beam, greedy
from heedful.decoding.ensemble import Ensemble
from heedful.errors import ConfigError
from heedful.interop import ctranslate2 as interop
from heedful.interop.ctranslate2 import write_ctranslate2
from heedful.interop.ctranslate2_import import WeightsFile
from heedful.interop.folder import ModelParts
from heedful.text import END, PAD, START, Codec, pad

ctranslate2 = pytest.importorskip("ctranslate2")

VARIANTS = list(
    itertools.product(
        ("pre", "post"), ("relu", "gelu", "silu"), ("none", "target", "all"), (False, True), (True, False)
    )
)


def weights_of(folder: Path) -> WeightsFile:
    content = (folder / "model.bin").read_bytes()
    return WeightsFile(io.BytesIO(content), len(content), str(folder / "model.bin"))


def opened(path: Path, parts: ModelParts, int8: bool = False) -> Any:
    write_ctranslate2(path, parts, int8)
    return ctranslate2.Translator(str(path), compute_type="int8_float32" if int8 else "float32", intra_threads=1)


def sentences(codec: Codec, count: int) -> list[list[int]]:
    pick = random.Random(count)
    return [[*(pick.randrange(4, len(codec)) for _ in range(pick.randint(1, 12))), END] for _ in range(count)]


def tokens(codec: Codec, ids: Any) -> list[str]:
    return [codec.token(i) for i in ids]


@pytest.mark.parametrize(("norm", "activation", "tied", "bias", "scale"), VARIANTS)
def test_every_variant_gives_the_same_log_probabilities_and_words(tmp_path, norm, activation, tied, bias, scale):
    parts = parts_of(tied == "all", norm=norm, activation=activation, tied=tied, bias=bias, scale=scale)
    theirs = opened(tmp_path / "m", parts)
    sources = sentences(parts.source, 30)
    targets = sentences(parts.target, 30)
    names = [tokens(parts.source, source) for source in sources]
    x, y = (torch.from_numpy(pad(ids)) for ids in (sources, [[START, *target] for target in targets]))
    with torch.inference_mode():
        memory = parts.model.encode(x, x != PAD)
        hidden = parts.model.step(y[:, :-1], parts.model.start(memory, y.shape[1]), memory).hidden
        logits = parts.model.logits(hidden)
        logits[..., [PAD, START]] = -torch.inf  # neither is in their softmax
        wanted = logits.log_softmax(-1).gather(-1, y[:, 1:, None])[..., 0]
        ours = greedy(parts.model, memory, [10] * len(sources))
    scored = theirs.score_batch(names, [tokens(parts.target, target[:-1]) for target in targets])
    for one, score in zip(wanted, scored, strict=True):
        np.testing.assert_allclose(score.log_probs, one[: len(score.log_probs)], atol=2e-4, rtol=1e-4)
    options = {"beam_size": 1, "max_decoding_length": 10, "min_decoding_length": 0, "return_end_token": True}
    for one, result in zip(ours, theirs.translate_batch(names, **options), strict=True):
        # At the limit ours end with `</s>`, theirs go on.
        assert result.hypotheses[0][:9] == tokens(parts.target, one.ids)[:9]


def test_a_beam_finds_the_same_words(tmp_path):
    parts = parts_of(bias=True, seed=3)
    with torch.no_grad():
        parts.model.b_o[PAD] = -50
        parts.model.b_o[END] += 3
    theirs = opened(tmp_path / "m", parts)
    sources = sentences(parts.source, 200)
    x = torch.from_numpy(pad(sources))
    with torch.inference_mode():
        memory = parts.model.encode(x, x != PAD)
        ours = [each[0] for each in beam(parts.model, memory, [30] * len(sources), Decoding(beam=4, penalty="none"))]
    names = [tokens(parts.source, source) for source in sources]
    options = {"beam_size": 4, "length_penalty": 0, "max_decoding_length": 30, "min_decoding_length": 0}
    results = theirs.translate_batch(names, return_end_token=True, return_scores=True, **options)
    # Not those that reach the limit, where theirs go on without `</s>`.
    ended = [(one, result) for one, result in zip(ours, results, strict=True) if result.hypotheses[0][-1] == "</s>"]
    assert len({one.ids for one, _ in ended}) > 10
    for one, result in ended:
        assert theirs_ids(parts, result) == list(one.ids)
        assert result.scores[0] == pytest.approx(sum(one.log_probs), abs=1e-3)


def theirs_ids(parts: ModelParts, result: Any) -> list[int]:
    ids = {parts.target.token(i): i for i in range(len(parts.target))}
    return [ids[token] for token in result.hypotheses[0]]


def test_positions_are_ours_up_to_the_longest_translation(tmp_path):
    parts = parts_of()
    parts = replace(parts, config=replace(parts.config, text=replace(parts.config.text, max_length=300)))
    theirs = opened(tmp_path / "m", parts)
    table = weights_of(tmp_path / "m").numbers("decoder/position_encodings/encodings")
    assert table.shape == (2 * 300 + 21, 16)
    np.testing.assert_array_equal(table, parts.model.position_vectors(621)[:621].numpy())
    longest = [tokens(parts.source, [7] * 299 + [END])]
    (result,) = theirs.translate_batch(longest, beam_size=1, max_decoding_length=620, min_decoding_length=620)
    assert len(result.hypotheses[0]) == 620


def test_int8_is_smaller_close_and_leaves_the_model_as_it_is(tmp_path):
    parts = parts_of(width=32, inner=128)
    before = {name: weight.clone() for name, weight in parts.model.state_dict().items()}
    write_ctranslate2(tmp_path / "float32", parts)
    opened(tmp_path / "int8", parts, int8=True)
    for name, weight in parts.model.state_dict().items():
        assert torch.equal(weight, before[name]), name
    sizes = [(tmp_path / name / "model.bin").stat().st_size for name in ("float32", "int8")]
    assert sizes[1] < 0.6 * sizes[0]
    exact, rounded = (weights_of(tmp_path / name) for name in ("float32", "int8"))
    name = "encoder/layer_0/ffn/linear_0/weight"
    assert rounded.numbers(name).dtype == np.int8
    wanted = exact.tensor(name)
    torch.testing.assert_close(rounded.tensor(name), wanted, atol=float(wanted.abs().max()) / 127, rtol=0)
    # The scale of an alias is that of the variable it stands for.
    tied = before["embedding.weight"]
    table = rounded.tensor("decoder/projection/weight")
    torch.testing.assert_close(table, tied, atol=float(tied.abs().max()) / 127, rtol=0)


def test_the_folder_says_how_it_is_used(tmp_path):
    parts = parts_of(joint=False)
    write_ctranslate2(tmp_path / "m", parts)
    files = {file.name for file in (tmp_path / "m").iterdir()}
    assert files == {
        "README.md",
        "config.json",
        "model.bin",
        "source.tokenizer.json",
        "source_vocabulary.json",
        "target.tokenizer.json",
        "target_vocabulary.json",
    }
    page = (tmp_path / "m" / "README.md").read_text()
    code = page.partition("```python\n")[2].partition("```")[0]
    assert "source.tokenizer.json" in code
    shown: list[str] = []
    folder = str(tmp_path / "m")
    code = code.replace('"source.tokenizer', f'"{folder}/source.tokenizer').replace(
        'Translator(".")', f"Translator({folder!r})"
    )
    exec(code, {"print": shown.append})
    assert len(shown) == 1


def test_a_folder_that_is_there_is_kept(tmp_path):
    (tmp_path / "m").mkdir()
    (tmp_path / "m" / "notes.txt").write_text("mine")
    with pytest.raises(ConfigError, match="already"):
        write_ctranslate2(tmp_path / "m", parts_of())
    assert [file.name for file in (tmp_path / "m").iterdir()] == ["notes.txt"]


def test_nothing_is_left_when_writing_fails(tmp_path, monkeypatch):
    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(interop, "_write_tokenizers", fail)
    with pytest.raises(Exception, match="No space left"):
        write_ctranslate2(tmp_path / "m", parts_of())
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["rnn", "luong", "fixed"])
def test_recurrent_models_are_refused_by_name(tmp_path, name):
    with pytest.raises(ConfigError, match=r"model\.family is (rnn|fixed)") as error:
        write_ctranslate2(tmp_path / "m", random_parts(name))
    assert "model.family=transformer" in str(error.value)


def test_ensembles_and_captioners_are_refused_by_name(tmp_path):
    one = parts_of()
    both = ModelParts(one.config, Ensemble([one.model, one.model]), one.source, one.target)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="ensemble"):
        write_ctranslate2(tmp_path / "m", both)
    with pytest.raises(ConfigError, match=r"image\.encoder"):
        write_ctranslate2(tmp_path / "m", captioner("transformer").parts)

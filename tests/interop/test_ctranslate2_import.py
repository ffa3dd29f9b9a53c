"""heedful/interop/ctranslate2_import.py: a CTranslate2 folder translates as the package ctranslate2 does with it."""

from __future__ import annotations

import io
import itertools
import json
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from ctranslate2_models import foreign_model, texts
from exported_models import parts_of
from random_translators import random_parts

import heedful
from heedful.errors import ConfigError, ModelError
from heedful.interop import format_of, read_ctranslate2, write_ctranslate2, write_marian
from heedful.interop.ctranslate2_import import WeightsFile
from heedful.interop.folder import ModelParts, read_model, write_model
from heedful.text import END, PAD, START, pad
from heedful.trace.readout import Readout

ctranslate2 = pytest.importorskip("ctranslate2")
pytest.importorskip("sentencepiece")

TYPES = ("float32", "float16", "bfloat16", "int8", "int8_float16", "int8_bfloat16", "int16")


def scores(parts: ModelParts, folder: Path, ended: bool) -> tuple[list[list[float]], list[list[float]]]:
    """The log-probabilities of some targets, by heedful and by the package."""
    sources = [parts.source_codec.encode(text).ids for text in texts(12, seed=5)]
    targets = [parts.target.encode(text).ids for text in texts(12, seed=6)]
    x, y = (torch.from_numpy(pad(ids)) for ids in (sources, [[START, *target] for target in targets]))
    with torch.inference_mode():
        memory = parts.model.encode(x, x != PAD)
        hidden = parts.model.step(y[:, :-1], parts.model.start(memory, y.shape[1]), memory).hidden
        logp = parts.model.logits(hidden).log_softmax(-1).gather(-1, y[:, 1:, None])[..., 0]
    ours = [row[: len(target)].tolist() for row, target in zip(logp, targets, strict=True)]
    package = ctranslate2.Translator(str(folder), compute_type="float32", intra_threads=1)
    names = [[parts.source_codec.token(i) for i in (ids if ended else ids[:-1])] for ids in sources]
    wanted = package.score_batch(names, [[parts.target.token(i) for i in target[:-1]] for target in targets])
    return ours, [list(one.log_probs) for one in wanted]


@pytest.mark.parametrize(("kind", "type_"), [*itertools.product(("opennmt", "marian"), TYPES), ("hf", "float32")])
def test_others_models_give_the_same_log_probabilities(tmp_path, kind, type_):
    folder = foreign_model(tmp_path / "m", kind, type_)
    parts = read_ctranslate2(folder)
    # Marian's converter adds the source's </s> itself; who uses the one of transformers adds it.
    ours, theirs = scores(parts, folder, ended=kind == "hf")
    # Positions in 8 and 11 bits are replaced by those in 24; all other rounding is the same.
    tolerance = {"float16": 2e-2, "bfloat16": 2e-1}.get(type_.removeprefix("int8_"), 2e-4)
    for one, other in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(one, other, atol=tolerance, rtol=1e-4)
    assert parts.config.model.source_end == (kind != "opennmt")
    assert type_.split("_")[0] in " ".join(parts.remarks)


@pytest.mark.parametrize("kind", ["opennmt", "marian"])
@pytest.mark.parametrize("beam", [1, 4])
def test_others_models_write_the_same_words(tmp_path, kind, beam):
    translator = heedful.load(foreign_model(tmp_path / "m", kind, end=3), "cpu")
    package = ctranslate2.Translator(str(tmp_path / "m"), compute_type="float32", intra_threads=1)
    lines, codec = texts(60, seed=3), translator.source_codec
    names = [[codec.token(i) for i in codec.encode(line).ids[:-1]] for line in lines]
    options: dict[str, Any] = {"beam_size": beam, "min_decoding_length": 0, "max_decoding_length": 25}
    results = package.translate_batch(names, length_penalty=0, return_end_token=True, **options)
    ours = translator.translate(lines, beam=beam, penalty="none", max_length=26, split=False)
    pairs = [(list(one.trace.target.tokens), r.hypotheses[0]) for one, r in zip(ours, results, strict=True)]
    if beam > 1:  # one that does not end by itself is compared without its </s> there
        pairs = [(one, other) for one, other in pairs if other[-1] == "</s>"]
    assert len(pairs) >= 10
    assert [one[:25] for one, _ in pairs] == [other[:25] for _, other in pairs]
    assert len({tuple(one) for one, _ in pairs}) >= (8 if beam == 1 else 1)
    engine = heedful.load(tmp_path / "m", "cpu", engine="ctranslate2")
    again = engine.translate(lines, beam=beam, penalty="none", max_length=26, split=False)
    assert sum(a.text == b.text for a, b in zip(ours, again, strict=True)) >= (60 if beam == 1 else len(pairs))


def test_a_source_without_an_end_is_masked_and_has_no_weight(tmp_path):
    translator = heedful.load(foreign_model(tmp_path / "m"), "cpu")
    one, *others = translator.translate(["the old cat sees a dog.", "a dog.", "my house and the small cat."])
    for each in (one, *others):
        weights = each.trace.weights
        assert weights.shape[-1] == len(each.trace.source.tokens)
        assert not weights[..., -1].any()
        np.testing.assert_allclose(weights.sum(-1), 1, atol=1e-5)
        assert each.trace.words().shape[1] == len(each.trace.source.words)
    alone = translator.translate("the old cat sees a dog.")
    np.testing.assert_allclose(alone.trace.weights, one.trace.weights, atol=1e-5)
    x = torch.tensor([translator.source_codec.encode("the old cat sees a dog.").ids])
    y = torch.tensor([[START, 7, 8]])
    with torch.inference_mode():
        parts = []
        for end in (END, 9):  # whatever stands there
            x[0, -1] = end
            memory = translator.parts.model.encode(x, x != PAD)
            parts.append(translator.parts.model.step(y, translator.parts.model.start(memory, 3), memory).hidden)
    torch.testing.assert_close(*parts)


VARIANTS = [
    ("pre", "relu", "none", False),
    ("pre", "gelu", "target", True),
    ("pre", "silu", "all", False),
    ("post", "relu", "all", True),
    ("post", "gelu", "none", True),
    ("post", "silu", "target", False),
]


def test_positions_of_marian_come_back(tmp_path):
    parts = parts_of(positions="marian")
    write_ctranslate2(tmp_path / "n", parts)
    back = heedful.load(tmp_path / "n", "cpu")
    assert back.config.model.positions == "marian"
    lines = ["a bead", "the quick fox jumps over the lazy dog"]
    ours, theirs = heedful.Translator(parts).translate(lines, max_length=8), back.translate(lines, max_length=8)
    assert [one.text for one in ours] == [one.text for one in theirs]


@pytest.mark.parametrize(("norm", "activation", "tied", "bias"), VARIANTS)
@pytest.mark.parametrize("int8", [False, True])
def test_our_own_export_comes_back(tmp_path, norm, activation, tied, bias, int8):
    parts = parts_of(tied == "all", norm=norm, activation=activation, tied=tied, bias=bias, scale=bias)
    write_ctranslate2(tmp_path / "n", parts, int8)
    back = heedful.load(tmp_path / "n", "cpu")
    settings = back.config.model
    assert (settings.norm, settings.activation, settings.tied, settings.scale) == (norm, activation, tied, bias)
    assert back.config.text == parts.config.text
    lines = ["a bead", "the quick fox", "cafe deaf", "lazy dog jumps over"]
    ours, theirs = heedful.Translator(parts).translate(lines, max_length=8), back.translate(lines, max_length=8)
    if not int8:
        for name, weight in back.parts.model.state_dict().items():
            if name != "b_o":  # has -100 for <pad> and <s>
                torch.testing.assert_close(weight, parts.model.state_dict()[name], rtol=0, atol=0)
        assert [one.text for one in theirs] == [one.text for one in ours]
        for one, other in zip(ours, theirs, strict=True):
            np.testing.assert_allclose(one.trace.weights, other.trace.weights, atol=1e-5)
    write_ctranslate2(tmp_path / "again", back.parts, int8)
    again = heedful.load(tmp_path / "again", "cpu").translate(lines, max_length=8)
    assert [one.text for one in again] == [one.text for one in theirs]


def test_our_own_export_with_sentencepiece_and_a_readout_comes_back(tmp_path):
    parts = random_parts("post", "sentencepiece")
    parts = ModelParts(parts.config, parts.model, parts.source, parts.target, readout=Readout(1, (2,), threshold=0.5))
    write_ctranslate2(tmp_path / "n", parts)
    back = heedful.load(tmp_path / "n", "cpu")
    assert back.readout == parts.readout
    text = "A b, c. Then d!"
    assert back.translate(text).text == heedful.Translator(parts).translate(text).text
    # Without heedful's tokenizers, as one from another program: those of SentencePiece do.
    for name in ("tokenizer.json", "source.tokenizer.json", "target.tokenizer.json"):
        (tmp_path / "n" / name).unlink(missing_ok=True)
    config = json.loads((tmp_path / "n" / "config.json").read_text())
    del config["heedful"]
    (tmp_path / "n" / "config.json").write_text(json.dumps({**config, "add_source_eos": True}))
    assert heedful.load(tmp_path / "n", "cpu").translate(text).text == back.translate(text).text


def test_opened_models_are_written_in_all_formats_and_trained_further(tmp_path):
    folder = foreign_model(tmp_path / "m", "marian")
    opened = heedful.load(folder, "cpu")
    lines = texts(6, seed=9)
    wanted = [one.text for one in opened.translate(lines)]
    write_marian(tmp_path / "marian", opened.parts)
    write_ctranslate2(tmp_path / "ct2", opened.parts)
    write_model(tmp_path / "ours", opened.parts)
    for name in ("marian", "ct2", "ours"):
        assert [one.text for one in heedful.load(tmp_path / name, "cpu").translate(lines)] == wanted, name
    steps = {"steps": 3, "batch_sentences": 4, "threads": 1, "device": "cpu", "warmup": 1, "valid_every": 3}
    pairs = [(text, text) for text in texts(20)]
    tuned = heedful.train(pairs, tmp_path / "run", init=folder, settings={"training": steps}, verbose=False)
    assert np.isfinite(tuned.parts.notes["validation"]["loss"])
    assert tuned.parts.notes["validation"]["loss"] < 1000  # what the file does not have does not count


def test_a_model_without_the_sources_end_is_trained_further_and_written(tmp_path):
    folder = foreign_model(tmp_path / "m", "opennmt")
    opened = heedful.load(folder, "cpu")
    steps = {"steps": 2, "batch_sentences": 4, "threads": 1, "device": "cpu", "warmup": 1, "valid_every": 2}
    pairs = [(text, text) for text in texts(20)]
    heedful.train(pairs, tmp_path / "run", init=folder, settings={"training": steps}, verbose=False)
    assert read_model(tmp_path / "run").config.model.source_end is False
    with pytest.raises(ConfigError, match=r"model\.source_end"):
        write_marian(tmp_path / "marian", opened.parts)
    write_ctranslate2(tmp_path / "ct2", opened.parts)
    lines = texts(6, seed=9)
    wanted = [one.text for one in opened.translate(lines)]
    back = heedful.load(tmp_path / "ct2", "cpu")
    assert back.config.model.source_end is False
    assert [one.text for one in back.translate(lines)] == wanted
    engine = heedful.load(folder, "cpu", engine="ctranslate2").translate(lines)
    assert [one.text for one in engine] == wanted


def test_the_heads_that_a_file_names_for_alignments_are_the_readout(tmp_path):
    one = heedful.load(foreign_model(tmp_path / "one", alignment=(1, 1)), "cpu").readout
    assert (one.layer, one.heads) == (2, (1,))
    every = heedful.load(foreign_model(tmp_path / "all", alignment=(2, 0)), "cpu").readout
    assert (every.layer, every.heads) == (3, ())
    usual = heedful.load(foreign_model(tmp_path / "none"), "cpu").readout
    assert usual.layer is None


def test_files_of_old_versions_are_read(tmp_path):
    folder = foreign_model(tmp_path / "m", "marian", "int16")
    wanted = heedful.load(folder, "cpu").translate(texts(5, seed=4))
    content = (folder / "model.bin").read_bytes()
    source = WeightsFile(io.BytesIO(content), len(content), "model.bin")
    for version in (5, 4, 3, 2):
        (folder / "model.bin").write_bytes(_written(source, version))
        (folder / "config.json").unlink(missing_ok=True)
        for name in folder.glob("*_vocabulary.json"):
            name.with_suffix(".txt").write_text("".join(f"{token}\n" for token in json.loads(name.read_text())))
            name.unlink()
        assert format_of(folder).name == "ctranslate2"  # type: ignore[union-attr]
        assert [one.text for one in heedful.load(folder, "cpu").translate(texts(5, seed=4))] == [w.text for w in wanted]


def _written(source: WeightsFile, version: int) -> bytes:
    """A file of weights in an older version, with the settings that later are in `config.json`."""

    def string(text: str) -> bytes:
        return struct.pack("<H", len(text) + 1) + text.encode() + b"\0"

    variables = {name: np.asarray(source.numbers(name)) for name in source.variables}
    variables["with_source_eos"] = np.array(1, np.int8)
    types = {"float32": 0, "int8": 1, "int16": 2}
    written = struct.pack("<I", version) + string("TransformerSpec") + struct.pack("<II", 5, len(variables))
    for name, array in variables.items():
        written += string(name) + struct.pack("<B", array.ndim) + struct.pack(f"<{array.ndim}I", *array.shape)
        kind = (types[array.dtype.name], array.nbytes) if version >= 4 else (array.itemsize, array.size)
        written += struct.pack("<BI", *kind) + array.tobytes()
    return written + (struct.pack("<I", 0) if version >= 3 else b"")


def changed(folder: Path, **settings: Any) -> None:
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, **settings}))


REFUSED = {
    "add_source_bos": (True, "add_source_bos"),
    "decoder_start_token": (None, "decoder_start_token"),
    "layer_norm_epsilon": (1e-6, "layer_norm_epsilon"),
    "eos_token": ("</end>", "</end>"),
    "unk_token": (3, "unk_token"),
}


@pytest.mark.parametrize("key", list(REFUSED))
def test_settings_that_are_not_supported_are_named(tmp_path, key):
    folder = foreign_model(tmp_path / "m")
    value, named = REFUSED[key]
    changed(folder, **{key: value})
    with pytest.raises(ModelError, match=named):
        read_ctranslate2(folder)


SPECS: dict[str, tuple[dict[str, Any], str]] = {
    "relative": ({"with_relative_position": True}, "relative positions"),
    "glu": ({"ffn_glu": True}, "gated"),
    "rms": ({"rms_norm": True}, "RMSNorm"),
    "embedding": ({"layernorm_embedding": True}, "norm after the embeddings"),
    "tanh": ({"activation": 1}, "gelu_tanh"),
    "features": ({"num_source_embeddings": 2}, "features"),
}


@pytest.mark.parametrize("name", list(SPECS))
def test_parts_that_are_not_supported_are_named(tmp_path, name):
    options, named = SPECS[name]
    spec = ctranslate2.specs.TransformerSpec.from_config(1, 2, **options)
    _fill(spec)
    features = options.get("num_source_embeddings", 1)
    for _ in range(features):
        spec.register_source_vocabulary(["<unk>", "<s>", "</s>", "a"])
    spec.register_target_vocabulary(["<unk>", "<s>", "</s>", "a"])
    spec.validate()
    spec.optimize(quantization="float32")
    (tmp_path / "m").mkdir()
    spec.save(str(tmp_path / "m"))
    (tmp_path / "m" / "sentencepiece.model").write_bytes(b"")
    for number in (1, 2):
        if (tmp_path / "m" / f"source_{number}_vocabulary.json").exists():
            (tmp_path / "m" / "shared_vocabulary.json").write_text('["<unk>", "<s>", "</s>", "a"]')
    foreign = format_of(tmp_path / "m")
    assert foreign is not None
    assert foreign.name == "ctranslate2"
    with pytest.raises(ModelError, match=named):
        foreign.read(tmp_path / "m", None)


def _fill(spec: Any) -> None:
    """Set all that is not set to small matrices."""
    for name, value in list(vars(spec).items()):
        if name.startswith("_"):
            continue
        for one in value if isinstance(value, list) else [value]:
            if isinstance(one, ctranslate2.specs.model_spec.LayerSpec):
                _fill(one)
        if value is None:
            setattr(spec, name, np.ones((4,) if name in ("gamma", "beta") else (4, 4), np.float32))


def test_a_damaged_file_is_named(tmp_path):
    folder = foreign_model(tmp_path / "m")
    content = (folder / "model.bin").read_bytes()
    name = content.index(b"decoder/embeddings/weight")
    damaged = {
        "too early|it ends in": content[:-40],
        "ends": content[:1000],
        "version 9": b"\x09" + content[1:],
        "too early": b"",
        "after the last variable": content + b"\0",
        "expected": content[: name + 27] + b"\xff" + content[name + 28 :],
        "infinite": content[: name + 60] + b"\xff\xff\xff\x7f" * 8 + content[name + 92 :],
    }
    for why, bad in damaged.items():
        (folder / "model.bin").write_bytes(bad)
        with pytest.raises(ModelError, match=why) as error:
            read_ctranslate2(folder)
        assert "model.bin" in str(error.value)
        assert len(str(error.value)) < 600


def test_a_file_may_not_declare_what_it_does_not_have(tmp_path):
    folder = foreign_model(tmp_path / "m")
    huge = struct.pack("<I", 6) + struct.pack("<H", 16) + b"TransformerSpec\0" + struct.pack("<II", 7, 1)
    huge += struct.pack("<H", 2) + b"a\0" + struct.pack("<B2I", 2, 2**20, 2**9) + struct.pack("<BI", 0, 2**31)
    (folder / "model.bin").write_bytes(huge)
    with pytest.raises(ModelError, match="2,147,483,648 bytes"):
        read_ctranslate2(folder)
    (folder / "model.bin").write_bytes(huge[:26] + struct.pack("<I", 2**31))
    with pytest.raises(ModelError, match="2,147,483,648 variables"):
        read_ctranslate2(folder)


def test_what_is_missing_is_named(tmp_path):
    folder = foreign_model(tmp_path / "m")
    (folder / "sentencepiece.model").rename(tmp_path / "sentencepiece.model")
    with pytest.raises(ModelError, match=r"source\.spm.*sentencepiece\.model.*open that") as error:
        heedful.load(folder)
    assert str(tmp_path) in str(error.value)
    (folder / "bpe.model").write_text("#version: 0.2\n")
    with pytest.raises(ModelError, match="subword-nmt"):
        heedful.load(folder)
    (folder / "shared_vocabulary.json").unlink()
    with pytest.raises(ModelError, match=r"source_vocabulary\.json"):
        heedful.load(folder)

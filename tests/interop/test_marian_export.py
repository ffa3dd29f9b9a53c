"""A model of ours written as a Marian folder gives the same output when `transformers` loads it."""

# ruff: noqa: F401, F811  (fixtures are imported, and are arguments of the same name)
from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from marian_models import (
    Made,
    check_same,
    check_same_writing,
    ids,
    load_model,
    load_tokenizer,
    marian,
    opus,
    theirs,
    toy_pairs,
    two_vocabularies,
)
from safetensors.torch import load_file

import heedful
from heedful.config import Config
from heedful.errors import ConfigError, DiskError
from heedful.interop import read_marian, write_marian
from heedful.interop.folder import ModelParts, read_model
from heedful.interop.marian import is_marian
from heedful.models import build
from heedful.text import PAD, START, Codec

pytestmark = pytest.mark.filterwarnings("ignore:Recommended")

MODEL = {"family": "transformer", "norm": "post", "width": 32, "heads": 4, "inner": 48, "layers": 1, "dropout": 0.0}
KINDS: dict[str, dict[str, dict[str, object]]] = {
    "one vocabulary": {"model": {"tied": "all", "bias": True}, "text": {"joint": True}},
    "two vocabularies": {"model": {"tied": "target", "decoder_layers": 2, "activation": "gelu"}},
    "two tables": {"model": {"tied": "target", "scale": False}, "text": {"joint": True}},
}


def settings(kind: str) -> dict[str, dict[str, object]]:
    chosen = KINDS[kind]
    text = {"kind": "sentencepiece", "size": 80, "max_length": 64, **chosen.get("text", {})}
    training = {
        "steps": 120,
        "warmup": 20,
        "rate": 0.01,
        "smoothing": 0.0,
        "device": "cpu",
        "threads": 1,
        "valid_every": 120,
    }
    return {"model": {**MODEL, **chosen["model"]}, "text": text, "training": training}


@pytest.fixture(
    scope="module",
    params=["one vocabulary", "two vocabularies", pytest.param("two tables", marks=pytest.mark.slow)],
)
def ours(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model that heedful has trained a little."""
    out = tmp_path_factory.mktemp("ours") / "model"
    heedful.train(toy_pairs(), out, settings=settings(request.param))
    return out


def opened(path: Path) -> Made:
    """What `transformers` makes of a folder."""
    return Made(path, load_model(path), load_tokenizer(path), toy_pairs())


@pytest.mark.slow
def test_the_same_output(ours: Path, tmp_path: Path) -> None:
    parts = read_model(ours)
    write_marian(tmp_path / "marian", parts)
    assert is_marian(tmp_path / "marian")
    made = opened(tmp_path / "marian")
    check_same(parts, made)
    check_same_writing(parts, made, [x for x, _ in toy_pairs(12, seed=1)])
    for side, texts in zip(("source", "target"), zip(*made.pairs[:30], strict=True), strict=True):
        table = ids(parts, made, side)
        wanted = theirs(made, list(texts), side)
        assert [[table[i] for i in row] for row in getattr(parts, side).ids(texts)] == wanted


def test_generate_needs_to_be_told_nothing(ours: Path, tmp_path: Path) -> None:
    """With the settings that lie in the folder, `generate` writes what `translate` writes."""
    write_marian(tmp_path / "marian", read_model(ours))
    made, translator = opened(tmp_path / "marian"), heedful.load(ours, "cpu")
    texts = [x for x, _ in made.pairs[:6]]
    batch = made.tokenizer(texts, return_tensors="pt", padding=True)
    found = made.tokenizer.batch_decode(
        made.model.generate(**batch), skip_special_tokens=True, use_source_tokenizer=False
    )
    assert [t.text for t in translator.translate(texts, trace=False)] == found


def test_out_and_back(ours: Path, tmp_path: Path) -> None:
    parts = read_model(ours)
    write_marian(tmp_path / "marian", parts)
    again = heedful.load(tmp_path / "marian", "cpu").parts
    assert again.source.dump() == parts.source.dump()
    assert again.target.dump() == parts.target.dump()
    before, after = parts.model.state_dict(), again.model.state_dict()
    bias = after.pop("b_o")
    if (given := before.pop("b_o", None)) is not None:
        bias[START] = given[START]  # nothing follows from it: <s> can never be written
        assert torch.equal(bias, given)
    assert before.keys() == after.keys()
    assert all(torch.equal(before[name], after[name]) for name in before)
    plain = again.config.plain()["model"]
    assert {**plain, "bias": parts.config.model.bias, "decoder_layers": parts.config.model.decoder_layers} == (
        parts.config.plain()["model"]
    )
    assert again.config.text.joint == parts.config.text.joint


@pytest.mark.slow
@pytest.mark.parametrize("name", ["opus", "two_vocabularies"])
def test_in_and_out_again(name: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    """Marian to ours to Marian gives the weights and the vocabulary back, id by id."""
    made = request.getfixturevalue(name)
    write_marian(tmp_path / "again", read_marian(made.path))
    for file in ("vocab.json", "target_vocab.json"):
        if (made.path / file).exists():
            assert json.loads((tmp_path / "again" / file).read_text()) == json.loads((made.path / file).read_text())
    for file in ("source.spm", "target.spm"):
        assert (tmp_path / "again" / file).read_bytes() == (made.path / file).read_bytes()
    before, after = load_file(made.path / "model.safetensors"), load_file(tmp_path / "again" / "model.safetensors")
    assert before.keys() == after.keys()
    assert all(torch.equal(before[key], after[key]) for key in before)
    old, new = (json.loads((p / "config.json").read_text()) for p in (made.path, tmp_path / "again"))
    silu = {"swish": "silu"}
    for key in old.keys() - {"transformers_version", "init_std", "use_cache", "encoder_layerdrop", "decoder_layerdrop"}:
        assert new[key] == silu.get(str(old[key]), old[key]), key
    check_same_writing(read_marian(made.path), opened(tmp_path / "again"), [x for x, _ in made.pairs[:8]])


def test_a_start_that_was_trained_is_a_token_of_its_own(opus: Made, tmp_path: Path) -> None:
    parts = read_marian(opus.path)
    with torch.no_grad():
        parts.model.embedding.weight[START] += 0.3
    write_marian(tmp_path / "tuned", parts)
    names = json.loads((tmp_path / "tuned" / "vocab.json").read_text(encoding="utf-8"))
    config = json.loads((tmp_path / "tuned" / "config.json").read_text(encoding="utf-8"))
    assert len(names) == len(opus.tokenizer.encoder) + 1
    assert config["decoder_start_token_id"] == names["<s>"] != config["pad_token_id"] == names["<pad>"]
    assert names["<pad>"] == len(names) - 1
    made = opened(tmp_path / "tuned")
    check_same_writing(parts, made, [x for x, _ in opus.pairs[:8]])
    again = read_marian(tmp_path / "tuned")
    assert again.source.dump() == parts.source.dump()
    assert torch.equal(again.model.embedding.weight, parts.model.embedding.weight)


def test_neither_pad_nor_start_can_be_written(opus: Made, tmp_path: Path) -> None:
    parts = read_marian(opus.path)
    with torch.no_grad():
        parts.model.embedding.weight[START] += 0.3
        parts.model.b_o[[PAD, START]] = 50.0
    write_marian(tmp_path / "tuned", parts)
    made = opened(tmp_path / "tuned")
    written = made.model.generate(**made.tokenizer(["the cat"], return_tensors="pt"), num_beams=2, max_new_tokens=6)
    config = made.model.config
    assert not {config.pad_token_id, config.decoder_start_token_id} & set(written[0, 1:-1].tolist())


def untrained(**changes: dict[str, object]) -> ModelParts:
    base = settings("one vocabulary")
    config = Config.build({section: {**base[section], **changes.get(section, {})} for section in ("model", "text")})
    codec = Codec.train(["a b c"], config.text)
    return ModelParts(config, build(config.model, len(codec), len(codec)).eval(), codec, codec)


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"model": {"norm": "pre"}}, "model.norm is pre; a Marian model has model.norm=post"),
        ({"model": {"norm": "pre", "tied": "none"}}, "model.norm=post. And model.tied is none; a Marian model has"),
        ({"model": {"tied": "none"}}, "model.tied is none; a Marian model has model.tied=all or target"),
        ({"text": {"kind": "bpe"}}, "text.kind is bpe; a Marian model has text.kind=sentencepiece"),
        ({"text": {"kind": "word"}}, "text.kind is word"),
    ],
)
def test_models_that_marian_cannot_be(changes: dict[str, dict[str, object]], says: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=says):
        write_marian(tmp_path / "m", untrained(**changes))
    assert not (tmp_path / "m").exists()


def test_a_recurrent_model_is_refused(tiny: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="model.family is rnn; a Marian model is a transformer"):
        write_marian(tmp_path / "m", read_model(tiny))


def test_other_vocabularies_than_the_settings_say(tmp_path: Path) -> None:
    parts = untrained()
    word = Codec.train(["a b c"], Config.build({"text": {"kind": "word"}}).text)
    with pytest.raises(ConfigError, match="text.kind is not sentencepiece"):
        write_marian(tmp_path / "m", replace(parts, target=word))


def test_a_model_that_is_there_stays(tiny: Path, tmp_path: Path) -> None:
    there = Path(shutil.copytree(tiny, tmp_path / "m"))
    before = {p.name: p.read_bytes() for p in there.iterdir() if p.is_file()}
    with pytest.raises(ConfigError, match="choose another folder"):
        write_marian(there, untrained())
    assert {p.name: p.read_bytes() for p in there.iterdir() if p.is_file()} == before
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="choose another folder"):
        write_marian(tmp_path / "file", untrained())
    with pytest.raises(DiskError, match="cannot be written"):
        write_marian(tmp_path / "file" / "m", untrained())


def test_half_a_folder_is_no_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import heedful.interop.marian_export as export

    written: list[str] = []

    def write(path: Path, content: bytes) -> None:
        if path.name == "config.json":
            raise DiskError("full")
        written.append(path.name)
        path.write_bytes(content)

    monkeypatch.setattr(export, "write_whole", write)
    with pytest.raises(DiskError):
        write_marian(tmp_path / "m", untrained())
    assert "model.safetensors" in written
    assert not is_marian(tmp_path / "m")


# The command.


def test_convert(heedful_cli: Callable[..., Any], opus: Made, tmp_path: Path) -> None:
    done = heedful_cli("convert", opus.path, "--out", tmp_path / "ours")
    assert (done.code, done.out) == (0, "")
    assert "written as a heedful model" in done.err
    done = heedful_cli("convert", tmp_path / "ours", "--out", tmp_path / "again", "--to", "marian")
    assert (done.code, done.out) == (0, "")
    words = heedful_cli("translate", opus.path, "the old cat.", "--device", "cpu").out
    assert words.strip()
    for path in ("ours", "again"):
        assert heedful_cli("translate", tmp_path / path, "the old cat.", "--device", "cpu").out == words


def test_convert_refuses(heedful_cli: Callable[..., Any], opus: Made, tiny: Path, tmp_path: Path) -> None:
    for args, says in (
        ((tiny, "--out", tmp_path / "x", "--to", "marian"), "model.family is rnn"),
        ((tiny, "--out", tmp_path / "x", "--to", "mariam"), "Did you mean 'marian'?"),
        ((opus.path, "--out", tiny), "choose another"),
        ((tmp_path / "nowhere", "--out", tmp_path / "x"), "there is no such model folder"),
    ):
        done = heedful_cli("convert", *args)
        assert done.code == 2
        assert says in done.err
        assert not (tmp_path / "x").exists()


def test_info(heedful_cli: Callable[..., Any], opus: Made) -> None:
    done = heedful_cli("info", opus.path)
    assert done.code == 0
    assert f"{opus.path}: a Marian model" in done.out
    assert 'norm = "post"' in done.out
    assert "bytes  source.spm" in done.out
    record = json.loads(heedful_cli("info", opus.path, "--json").out)
    assert record["format"] == "marian"
    assert record["vocabulary"] == {"source": 84, "target": 84}

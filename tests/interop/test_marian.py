"""A Marian folder read by us is the model that `transformers` reads; what is wrong with a folder is said in words."""

# ruff: noqa: F401, F811  (fixtures are imported, and are arguments of the same name)
from __future__ import annotations

import json
import os
import pickle
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from marian_models import (
    ENGLISH,
    HINDI,
    LIMIT,
    SENTENCES,
    Made,
    check_same,
    check_same_writing,
    ids,
    load_tokenizer,
    marian,
    opus,
    theirs,
    two_vocabularies,
)
from small_runs import pad

from heedful.decoding import Decoding, beam, greedy, log_probs
from heedful.errors import HeedfulError, ModelError
from heedful.interop import read_marian
from heedful.interop.folder import ModelParts, read_model, write_model
from heedful.interop.marian import is_marian
from heedful.models import NeedWeights
from heedful.text import END, PAD, START, UNKNOWN

pytestmark = pytest.mark.filterwarnings("ignore:Recommended")
FIXTURES = [HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
FILES = ["config.json", "model.safetensors", "source.spm", "target.spm", "vocab.json"]


@pytest.fixture(params=["opus", "two_vocabularies"])
def made(request: pytest.FixtureRequest) -> Made:
    return request.getfixturevalue(request.param)


@pytest.fixture
def folder(opus: Made, tmp_path: Path) -> Path:
    return Path(shutil.copytree(opus.path, tmp_path / "model"))


def test_the_same_numbers(made: Made) -> None:
    check_same(read_marian(made.path), made)


def test_the_same_words_are_written(made: Made) -> None:
    assert check_same_writing(read_marian(made.path), made, [x for x, _ in made.pairs[:12]])


def test_what_becomes_of_the_settings(opus: Made, two_vocabularies: Made) -> None:
    parts, two = read_marian(opus.path), read_marian(two_vocabularies.path)
    model = parts.config.plain()["model"]
    assert (model["norm"], model["tied"], model["bias"], model["scale"]) == ("post", "all", True, True)
    assert (model["layers"], model["decoder_layers"], model["heads"], model["inner"]) == (2, 1, 4, 48)
    assert (model["activation"], two.config.plain()["model"]["activation"]) == ("silu", "gelu")
    assert two.config.plain()["model"]["tied"] == "target"
    assert parts.config.text.kind == "sentencepiece"
    assert parts.config.text.max_length == 64
    assert not parts.config.text.joint
    assert len(parts.source) == len(parts.target) == len(opus.tokenizer.encoder) + 1
    assert len(two.source) != len(two.target)


def test_a_sentence_begins_as_theirs_do(opus: Made) -> None:
    """`<s>` is one more row: that of the token that Marian begins with, which is not a row of zeros here."""
    weights = read_marian(opus.path).model.state_dict()
    row = opus.model.config.decoder_start_token_id
    theirs = opus.model.get_decoder().embed_tokens.weight[row]
    assert theirs.abs().sum() > 1
    assert torch.equal(weights["embedding.weight"][START], theirs)
    assert torch.equal(weights["embedding.weight"][PAD], theirs)
    assert weights["b_o"][START] == weights["b_o"][PAD] == opus.model.final_logits_bias[0, row] != 0


TEXTS = [
    *(
        "the old cat.",
        "  two   spaces ",
        "",
        " ",
        "ξ unknown ζζ",
        "ﬁne … ㍿",
        "cafe\u0301",
        "a\u3000b\tc\nd",
        "▁",
        "a▁b",
    ),
    *(
        ">>fra<< the cat",
        ">>hin<<",
        ">>hin<<dog",
        ">>xyz<< dog",
        ">>hin<<>>fra<< dog",
        " >>hin<< dog",
        ">> dog",
        "<< dog",
    ),
    *("🙂 \u200b x", "the" * 50, "।", "बिल्ली", "बिल्ली cat", "\u00a8 ´", "a\x00b\x01c", "½ ² Ⅳ"),
]


@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize("side", ["source", "target"])
def test_the_same_tokens(opus: Made, text: str, side: str) -> None:
    parts = read_marian(opus.path)
    table = ids(parts, opus, side)
    codec = getattr(parts, side)
    wanted = theirs(opus, [text], side)[0]
    assert [table[i] for i in codec.encode(text).ids] == wanted
    assert [table[i] for i in codec.ids([text])[0]] == wanted


@given(st.lists(st.sampled_from([*ENGLISH, *HINDI, " ", "  ", "é", "ﬁ", "▁", ".", "।", ">>hin<<", "Ω"]), max_size=12))
@settings(max_examples=150, deadline=None, suppress_health_check=FIXTURES)
def test_the_same_tokens_of_any_text(opus: Made, words: list[str]) -> None:
    text = "".join(words)
    parts = read_marian_once(opus.path)
    assert [ids(parts, opus, "source")[i] for i in parts.source.ids([text])[0]] == theirs(opus, [text])[0]


_READ: dict[Path, ModelParts] = {}


def read_marian_once(path: Path) -> ModelParts:
    if path not in _READ:
        _READ[path] = read_marian(path)
    return _READ[path]


def test_the_same_text_is_read(opus: Made) -> None:
    parts = read_marian(opus.path)
    table = ids(parts, opus, "target")
    for _, text in opus.pairs[:20]:
        written = parts.target.encode(text).ids
        decoded = opus.tokenizer.decode([table[i] for i in written], skip_special_tokens=True)
        assert parts.target.decode(written) == decoded == text


def test_languages_are_tokens_of_their_own(opus: Made) -> None:
    source = read_marian(opus.path).source
    encoded = source.encode(">>hin<< the cat")
    assert [source.token(i) for i in encoded.ids] == [">>hin<<", "▁the", "▁cat", "</s>"]
    assert encoded.spans == ((0, 7), (8, 11), (12, 15), (15, 15))


def test_what_was_typed_is_never_special(opus: Made) -> None:
    """Here we differ from `transformers`, where a </s> in the text ends the sentence."""
    found = read_marian(opus.path).source.encode("the </s> <pad> cat").ids
    assert not {PAD, START, END} & set(found[:-1])


def test_saved_as_our_own_folder(made: Made, tmp_path: Path) -> None:
    parts = read_marian(made.path)
    write_model(tmp_path / "ours", parts)
    again = read_model(tmp_path / "ours")
    assert again.config == parts.config
    assert (again.source.dump(), again.target.dump()) == (parts.source.dump(), parts.target.dump())
    check_same(again, made)


@pytest.mark.parametrize("new", [True, False])
def test_weights_in_a_pickle_file(folder: Path, opus: Made, new: bool) -> None:
    """All names of the tied weights, the positions, half precision kept as such: as old repositories have it."""
    (folder / "model.safetensors").unlink()
    state = opus.model.state_dict()
    assert "model.encoder.embed_positions.weight" in state
    torch.save(state, folder / "pytorch_model.bin", _use_new_zipfile_serialization=new)
    check_same(read_marian(folder), opus)


def test_half_precision(folder: Path, opus: Made) -> None:
    (folder / "model.safetensors").unlink()
    torch.save({name: w.half() for name, w in opus.model.state_dict().items()}, folder / "pytorch_model.bin")
    weights = read_marian(folder).model.state_dict()
    assert {w.dtype for w in weights.values()} == {torch.float32}


def test_safetensors_are_preferred(folder: Path, opus: Made) -> None:
    (folder / "pytorch_model.bin").write_bytes(b"never read")
    check_same(read_marian(folder), opus)


def test_is_marian(opus: Made, tiny: Path, tmp_path: Path) -> None:
    assert is_marian(opus.path)
    assert not is_marian(tiny)
    assert not is_marian(tmp_path)
    assert not is_marian(tmp_path / "nowhere")
    for content in ("", "[]", '"marian"', '{"model_type": ["marian"]}', "[" * 100_000):
        (tmp_path / "config.json").write_text(content)
        assert not is_marian(tmp_path)


# What may be wrong with a folder.


def change(path: Path, **settings: object) -> None:
    config = json.loads(path.read_text(encoding="utf-8"))
    path.write_text(json.dumps({**config, **settings}), encoding="utf-8")


def refused(folder: Path, match: str) -> None:
    with pytest.raises(ModelError, match=match) as error:
        read_marian(folder)
    assert str(folder) in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("setting", "value", "says"),
    [
        ("model_type", "bart", "model_type is 'bart', expected 'marian'"),
        (
            "activation_function",
            "gelu_new",
            "activation_function is 'gelu_new', expected one of gelu, relu, silu, swish",
        ),
        ("activation_function", 3, "activation_function is 3, expected a word"),
        (
            "decoder_attention_heads",
            2,
            "encoder_attention_heads is 4 and decoder_attention_heads is 2; they must be eq",
        ),
        ("encoder_ffn_dim", 47, "encoder_ffn_dim is 47 and decoder_ffn_dim is 48"),
        ("d_model", 33, "model.width is 33, which 4 heads"),
        ("d_model", "32", "d_model is '32', expected a whole number"),
        ("d_model", True, "d_model is True, expected a whole number"),
        ("d_model", None, "d_model is None, expected"),
        ("d_model", 2**40, "model.width is '1099511627776', expected"),
        ("d_model", 16384, "has shape"),
        ("encoder_layers", 0, "model.layers is '0'"),
        ("encoder_layers", 64, "there is no weight 'model.encoder.layers.2"),
        ("encoder_layers", 1, "'model.encoder.layers.1.* is not a weight of a Marian model with these settings"),
        ("decoder_layers", 0, "model.decoder_layers is '-1'"),
        ("scale_embedding", 1, "scale_embedding is 1, expected true or false"),
        ("dropout", "much", "dropout is 'much', expected a number"),
        ("dropout", 7, "model.dropout is '7'"),
        ("normalize_before", True, "only models with normalize_before=False are supported"),
        ("static_position_embeddings", False, "static_position_embeddings"),
        ("tie_word_embeddings", False, "only models with tie_word_embeddings=True"),
        ("vocab_size", 3, "vocab_size is 3 and decoder_vocab_size is"),
        ("decoder_vocab_size", 9, "decoder_vocab_size is 9"),
        ("share_encoder_decoder_embeddings", False, "there is no weight 'model.encoder.embed_tokens.weight'"),
        ("eos_token_id", 5, "vocab.json: </s> has the id 0, but config.json says eos_token_id 5"),
        ("eos_token_id", [0, 1], "eos_token_id is .0, 1., expected"),
        ("pad_token_id", 5, "config.json says pad_token_id 5"),
        ("decoder_start_token_id", 5000, "says decoder_start_token_id 5000"),
        ("decoder_start_token_id", -1, "decoder_start_token_id is -1"),
        ("max_position_embeddings", 0, "text.max_length is '0'"),
    ],
)
def test_settings_that_cannot_be(folder: Path, setting: str, value: object, says: str) -> None:
    change(folder / "config.json", **{setting: value})
    refused(folder, says)


@pytest.mark.parametrize("name", FILES)
def test_a_file_that_is_missing(folder: Path, name: str) -> None:
    (folder / name).unlink()
    refused(folder, f"{name}: cannot be read .No such file or directory.; the model is incomplete")


@pytest.mark.parametrize("name", FILES)
def test_a_file_of_something_else(folder: Path, name: str) -> None:
    (folder / name).write_bytes(b"\x00nothing of the kind")
    refused(folder, f"{name}: this is not ")


@pytest.mark.parametrize("name", FILES)
def test_an_empty_file(folder: Path, name: str) -> None:
    (folder / name).write_bytes(b"")
    refused(folder, f"{name}: this is not ")


@pytest.mark.parametrize("name", FILES)
def test_half_a_file(folder: Path, name: str) -> None:
    content = (folder / name).read_bytes()
    (folder / name).write_bytes(content[: len(content) // 2])
    refused(folder, f"{name}: ")


def test_a_pipe_is_not_waited_for(folder: Path) -> None:
    (folder / "source.spm").unlink()
    os.mkfifo(folder / "source.spm")
    refused(folder, "source.spm: this is a pipe, expected a plain file")


def edit_vocabulary(edit: Callable[[dict[str, Any]], None]) -> Callable[[Path], None]:
    def apply(folder: Path) -> None:
        path = folder / "vocab.json"
        found = json.loads(path.read_text(encoding="utf-8"))
        edit(found)
        path.write_text(json.dumps(found), encoding="utf-8")

    return apply


@pytest.mark.parametrize(
    ("edit", "says"),
    [
        (lambda v: v.pop("▁cat"), "vocab.json: has .* tokens, but config.json says"),
        (lambda v: v.update({"▁cat": 0}), "the ids are not the numbers from 0 to"),
        (lambda v: v.update({"▁cat": "5"}), "expected a whole number for each token"),
        (lambda v: v.update({"▁cat": True}), "expected a whole number for each token"),
        (lambda v: v.update({"<nothing>": v.pop("<unk>")}), "there is no token <unk>"),
        (lambda v: v.update({"<nothing>": v.pop("<pad>")}), "there is no token <pad>"),
        (lambda v: v.update({"\ud800": v.pop("▁cat")}), "has a token that is not text"),
    ],
)
def test_a_vocabulary_that_cannot_be(folder: Path, edit: Callable[[dict[str, Any]], None], says: str) -> None:
    edit_vocabulary(edit)(folder)
    refused(folder, says)


def test_a_vocabulary_that_does_not_fit_the_weights(folder: Path) -> None:
    size = len(json.loads((folder / "vocab.json").read_text(encoding="utf-8")))
    edit_vocabulary(lambda v: v.update({"<pad>": size, "new": size - 1}))(folder)
    new = {"vocab_size": size + 1, "decoder_vocab_size": size + 1}
    change(folder / "config.json", **new, pad_token_id=size, decoder_start_token_id=size)
    refused(folder, rf"'model.shared.weight' has shape \({size}, 32\), expected \({size + 1}, 32\)")


def test_two_vocabularies_one_of_them_missing(two_vocabularies: Made, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(two_vocabularies.path, tmp_path / "m"))
    (folder / "target_vocab.json").unlink()
    refused(folder, "target_vocab.json: cannot be read")
    (folder / "tokenizer_config.json").unlink()
    refused(folder, "there is no target_vocab.json")


def edit_weights(folder: Path, made: Made, **changes: torch.Tensor | None) -> None:
    (folder / "model.safetensors").unlink()
    state = {name: w.clone() for name, w in made.model.state_dict().items()}
    for name, weight in changes.items():
        name = name.replace("__", ".")
        state.pop(name, None)
        if weight is not None:
            state[name] = weight
    torch.save(state, folder / "pytorch_model.bin")


@pytest.mark.parametrize(
    ("name", "weight", "says"),
    [
        ("model.decoder.layers.0.fc1.bias", None, "there is no weight 'model.decoder.layers.0.fc1.bias'"),
        ("model.decoder.layers.0.fc1.bias", torch.zeros(5), r"fc1.bias' has shape \(5,\), expected \(48,\)"),
        ("model.decoder.layers.0.fc1.bias", torch.zeros(48).long(), "holds torch.int64, expected floating point"),
        ("model.decoder.layer_norm.weight", torch.zeros(32), "'model.decoder.layer_norm.weight' is not a weight of"),
        ("model.encoder.embed_positions.weight", torch.zeros(3, 32), r"has shape \(3, 32\), expected \(64, 32\)"),
        ("final_logits_bias", torch.zeros(1, 7), r"'final_logits_bias' has shape \(1, 7\)"),
        ("model.shared.weight", torch.zeros(83, 32), "is not the same as 'model.shared.weight'"),
        ("model.shared.weight", torch.zeros(1, 1).expand(83, 32), "'model.shared.weight' is not a plain tensor"),
        ("model.shared.weight", torch.zeros(83, 32).to_sparse(), "'model.shared.weight' is not a plain tensor"),
        ("model.shared.weight", [1, 2], "'model.shared.weight' is not a plain tensor"),
    ],
)
def test_weights_that_cannot_be(folder: Path, opus: Made, name: str, weight: Any, says: str) -> None:
    assert len(opus.tokenizer.encoder) == 83
    edit_weights(folder, opus, **{name: weight})
    refused(folder, f"pytorch_model.bin: .*{says}")


class Trap:
    """What a stranger's pickle may hold: something to be called when it is read."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> tuple[Any, ...]:
        return (Path.touch, (self.mark,))


@pytest.mark.parametrize("writer", [torch.save, lambda trap, path: path.write_bytes(pickle.dumps(trap))])
def test_a_pickle_is_not_executed(folder: Path, tmp_path: Path, writer: Callable[[Any, Path], None]) -> None:
    (folder / "model.safetensors").unlink()
    mark = tmp_path / "executed"
    writer({"model.shared.weight": Trap(mark)}, folder / "pytorch_model.bin")
    refused(folder, "pytorch_model.bin: these are not plain weights, and nothing else is loaded")
    assert not mark.exists()


def test_a_pickle_of_something_else(folder: Path) -> None:
    (folder / "model.safetensors").unlink()
    torch.save([torch.zeros(3)], folder / "pytorch_model.bin")
    refused(folder, "expected weights by name, found list")


def test_a_bias_that_is_not_there_is_zero(folder: Path, opus: Made) -> None:
    edit_weights(folder, opus, final_logits_bias=None)
    assert not read_marian(folder).model.state_dict()["b_o"].any()


def test_a_start_that_is_a_token_of_its_own(folder: Path, opus: Made) -> None:
    """A `<s>` in the vocabulary is ours if sentences begin with it, and a token like any other if they do not."""
    edit_vocabulary(lambda v: v.update({"<s>": v.pop("▁cat")}))(folder)
    place = json.loads((folder / "vocab.json").read_text(encoding="utf-8"))["<s>"]
    parts = read_marian(folder)
    assert len(parts.source) == 84
    assert parts.source.tokens.count("<s>_") == 1
    change(folder / "config.json", decoder_start_token_id=place)
    parts = read_marian(folder)
    assert len(parts.source) == 83
    row = opus.model.get_decoder().embed_tokens.weight[place]
    assert torch.equal(parts.model.state_dict()["embedding.weight"][START], row)


@given(data=st.data(), name=st.sampled_from(FILES))
@settings(max_examples=40, deadline=None, suppress_health_check=FIXTURES)
def test_random_damage(folder: Path, data: st.DataObject, name: str) -> None:
    """It is refused with one of our errors, or is harmless: nothing else may happen."""
    before = (folder / name).read_bytes()
    at, noise = data.draw(st.integers(0, len(before) - 1)), data.draw(st.binary(min_size=1, max_size=20))
    try:
        (folder / name).write_bytes(before[:at] + noise + before[at + len(noise) :])
        parts = read_marian(folder)
        x = pad(parts.source.ids(["the cat"]))
        greedy(parts.model, parts.model.encode(x, x != PAD), [5])
    except HeedfulError:
        return
    finally:
        (folder / name).write_bytes(before)


def test_unknown_pieces(opus: Made) -> None:
    source = read_marian(opus.path).source
    text = "the Ω cat"
    encoded = source.encode(text)
    assert [text[a:b] for i, (a, b) in zip(encoded.ids, encoded.spans, strict=True) if i == UNKNOWN] == ["Ω"]

"""Marian's own files are read as what they are: the same tokens as by Marian's formulas; damage is said in words."""

from __future__ import annotations

import io
import json
import struct
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import marian_files as files
import numpy as np
import pytest
import torch

import heedful
from heedful.decoding import Decoding, beam, greedy, sample
from heedful.errors import ConfigError, ModelError
from heedful.interop import format_of, open_parts, write_ctranslate2, write_marian
from heedful.interop.folder import ModelParts, read_model, write_model
from heedful.interop.marian_binary import read_ids, read_marian_binary, read_yaml
from heedful.models.transformer import Transformer
from heedful.text import END, SPECIALS, pad

pytest.importorskip("sentencepiece")

CPU = torch.device("cpu")
SENTENCES = [
    "the old cat",
    "we know the small dog of the king",
    "wir essen heute",
    "a",
    "you never sing near my garden",
]


def theirs(parts: ModelParts, ids: tuple[int, ...] | list[int], target: bool = False) -> list[int]:
    """Return Marian's ids of heedful's."""
    names = files.pieces(parts.target.model if target else parts.source.model)  # type: ignore[union-attr, attr-defined]
    codec = parts.target if target else parts.source_codec
    return [0 if i == END else 1 if i == 1 else names.index(codec.token(i)) for i in ids]


def decode(parts: ModelParts, limit: int = 12, **settings: Any) -> list[list[int]]:
    """Return Marian's ids of what is decoded for all sentences, in one batch."""
    rows = parts.source_codec.ids(SENTENCES)
    x = torch.from_numpy(pad(rows))
    with torch.inference_mode():
        memory = parts.model.encode(x, x != 0)
        limits = [limit] * len(rows)
        how = Decoding(**settings)
        found = (
            [one[0] for one in beam(parts.model, memory, limits, how)]
            if how.beam > 1
            else greedy(parts.model, memory, limits, how)
        )
    return [theirs(parts, one.ids, target=True) for one in found]


def reference(
    parts: ModelParts, made: tuple[Any, files.Arrays], limit: int = 12, short: bool = False
) -> list[list[int]]:
    """Return what Marian's formulas give."""
    model, outputs = files.Reference(*made), []
    for row in parts.source_codec.ids(SENTENCES):
        ids = theirs(parts, row)
        size = made[0]["dim-vocabs"][1]
        some = files.allowed(ids, files.lexicon(size), 6, copied=True) if short else None
        written = model.greedy(ids, limit, some)
        outputs.append(written if written[-1] == 0 else [*written[:-1], 0])
    return outputs


OTHER = {"transformer_decoder_autoreg": "self-attention", "transformer_ffn_activation": "swish"}
PRE = {"transformer_preprocess": "n", "transformer_postprocess": "da", "transformer_postprocess_top": "n"}
KINDS: dict[str, dict[str, Any]] = {
    "student": {},
    "one precision": {"bits": 32},
    "16 bits": {"bits": 16},
    "self-attention": {**OTHER, "bits": 32},
    "before": {**PRE, "bits": 32},
    "before, self-attention": {**PRE, **OTHER},
    "own output": {"tied_embeddings_all": False},
    "own embeddings": {"tied_embeddings_all": False, "tied_embeddings": True},
    "shared, own output": {"tied_embeddings_all": False, "tied_embeddings_src": True},
    "tied layers": {"transformer_tied_layers": [1, 1], "output_omit_bias": True},
    "many layers": {"dec_depth": 3, "enc_depth": 1, "transformer_guided_alignment_layer": 2},
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("short", [False, True], ids=["all", "shortlist"])
def test_decodes_what_the_formulas_of_marian_give(tmp_path: Path, kind: str, short: bool) -> None:
    made = files.student(tmp_path / "m", shortlist=short, **KINDS[kind])
    parts = read_marian_binary(tmp_path / "m", CPU)
    assert decode(parts) == reference(parts, made, short=short)


@pytest.mark.parametrize("kind", ["student", "before, self-attention", "own output"])
def test_scores_and_guided_weights_are_those_of_the_formulas(tmp_path: Path, kind: str) -> None:
    made = files.student(tmp_path / "m", shortlist=False, **KINDS[kind])
    translator = heedful.load(tmp_path / "m", "cpu")
    (scored,) = translator.score([SENTENCES[0]], ["der hund"])
    model, parts = files.Reference(*made), translator.parts
    source = theirs(parts, parts.source_codec.ids([SENTENCES[0]])[0])
    target = theirs(parts, parts.target.ids(["der hund"])[0], target=True)
    logits, weights = model.logits(model.encode(source), target[:-1])
    log_p = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
    assert scored.trace is not None
    assert scored.trace.log_probs is not None
    np.testing.assert_allclose(scored.trace.log_probs, log_p[range(len(target)), target], atol=2e-4)
    layer = translator.readout.layer
    assert scored.trace.weights is not None
    assert layer == len(scored.trace.weights)
    np.testing.assert_allclose(scored.trace.weights[-1, 0], weights, atol=2e-5)
    assert "guided head" in str(translator.readout)


def test_an_npz_with_lists_of_tokens_is_opened_as_opus_mt_was_published(tmp_path: Path) -> None:
    settings, weights, tokens = files.opus(tmp_path)
    named = {"models": [files.OPUS], "vocabs": ["opus.vocab.yml"] * 2, "relative-paths": True}
    for path in (tmp_path, tmp_path / files.OPUS, tmp_path / "decoder.yml"):
        if path.suffix == ".yml":
            path.write_text(files.yaml(named))
        parts = read_marian_binary(path, CPU)
        assert parts.source_codec.token(len(tokens) + 1) == "<s>_"  # <pad> and <s> are added before
        rows = parts.source_codec.ids(SENTENCES)
        ids = [
            [0 if i == END else 1 if i == 1 else tokens.index(parts.source_codec.token(i)) for i in row] for row in rows
        ]
        x = torch.from_numpy(pad(rows))
        with torch.inference_mode():
            found = greedy(parts.model, parts.model.encode(x, x != 0), [9] * len(rows))
        written = [
            [0 if i == END else tokens.index(parts.target.token(i).replace("<s>_", "<s>")) for i in one.ids]
            for one in found
        ]
        model = files.Reference(settings, weights)
        for row, output in zip(ids, written, strict=True):
            expected = model.greedy(row, 9)
            assert output == (expected if expected[-1] == 0 else [*expected[:-1], 0])


@pytest.mark.parametrize("how", [{}, {"beam": 3}], ids=["greedy", "beam"])
def test_a_shortlist_is_that_of_the_sentence_and_not_of_its_batch(tmp_path: Path, how: dict[str, Any]) -> None:
    files.student(tmp_path / "m")
    translator = heedful.load(tmp_path / "m", "cpu")
    together = [one.text for one in translator.translate(SENTENCES, max_length=9, **how)]
    assert together == [translator.translate(text, max_length=9, **how).text for text in SENTENCES]
    every = heedful.load(tmp_path / "m", "cpu", shortlist=False)
    assert together != [one.text for one in every.translate(SENTENCES, max_length=9, **how)]
    # What is written is allowed, and its probability is that among the allowed tokens.
    parts, lists = translator.parts, files.lexicon(len(files.pieces(files.spm())))
    for text in SENTENCES:
        source = parts.source_codec.ids([text])[0]
        some = files.allowed(theirs(parts, source), lists, 6, copied=True)
        drawn = sample(parts.model, _memory(parts, [text]), [9], Decoding(sample=True, n_best=6), [source])[0]
        for one in drawn:
            assert set(theirs(parts, one.ids, target=True)) <= some


def _memory(parts: ModelParts, texts: list[str]) -> Any:
    x = torch.from_numpy(pad(parts.source_codec.ids(texts)))
    with torch.inference_mode():
        return parts.model.encode(x, x != 0)


@pytest.mark.parametrize("kind", ["student", "self-attention"])
def test_all_ways_of_decoding_obey_the_shortlist(tmp_path: Path, kind: str) -> None:
    from heedful.decoding import ContinuousBatch, SlotDecoder
    from heedful.decoding.ensemble import Ensemble

    files.student(tmp_path / "m", **KINDS[kind])
    parts = open_parts(tmp_path / "m", CPU)
    limits = [9] * len(SENTENCES)
    expected = [one.ids for one in greedy(parts.model, _memory(parts, SENTENCES), limits)]
    slots = SlotDecoder(parts.model, rows=2).decode(_memory(parts, SENTENCES), limits, Decoding())
    assert [one.ids for (one,) in slots] == expected
    best = [each[0].ids for each in beam(parts.model, _memory(parts, SENTENCES), limits, Decoding(beam=3))]
    slots = SlotDecoder(parts.model, rows=6).decode(_memory(parts, SENTENCES), limits, Decoding(beam=3))
    assert [each[0].ids for each in slots] == best
    batch, done = ContinuousBatch(parts.model), {}
    for number, text in enumerate(SENTENCES):  # each joins a step later
        batch.join(_memory(parts, [text]), [number], [9], [()])
        done |= dict(batch.step())
    while len(batch):
        done |= dict(batch.step())
    assert [done[i].ids for i in range(len(SENTENCES))] == expected
    twice = Ensemble([parts.model, parts.model])
    x = torch.from_numpy(pad(parts.source_codec.ids(SENTENCES)))
    with torch.inference_mode():
        both = greedy(twice, twice.encode(x, x != 0), limits)
    assert [one.ids for one in both] == expected


@pytest.mark.parametrize("how", [{}, {"beam": 4}, {"sample": True}, {"beam": 4, "n_best": 2}], ids=str)
def test_a_prefix_may_have_tokens_that_the_shortlist_lacks(tmp_path: Path, how: dict[str, Any]) -> None:
    files.student(tmp_path / "m")
    short, every = (heedful.load(tmp_path / "m", "cpu", shortlist=on) for on in (True, False))
    codec = short.parts.target
    text = "the old cat"
    source = short.parts.source_codec.ids([text])
    with torch.inference_mode():
        x = torch.from_numpy(pad(source))
        allowed = short.parts.model.encode(x, x != 0).allowed
    assert allowed is not None
    words = [word for word in ["you", "never", "sing", "near", "my", "garden"] if codec.ids([word])[0][:-1]]
    lacking = [word for word in words if not all(allowed.keep[0, i] for i in codec.ids([word])[0][:-1])]
    assert lacking
    for word in lacking[:2]:
        for translator in (short, every, heedful.load([tmp_path / "m", tmp_path / "m"], "cpu")):
            done = translator.translate(text, prefix=word, max_length=8, **how)
            assert done.text.startswith(word)
            assert np.isfinite(done.score)
        streamed = "".join(token.text for token in short.stream(text, prefix=word, max_length=8))
        assert streamed.strip().startswith(word)


def test_the_worker_of_a_service_gets_the_shortlist(tmp_path: Path) -> None:
    from heedful.serve.engine.worker import pack, unpack

    files.student(tmp_path / "m")
    parts = open_parts(tmp_path / "m", CPU)
    memory = _memory(parts, SENTENCES)
    with torch.inference_mode():
        again = unpack(pack(memory))
        limits = [9] * len(SENTENCES)
        assert greedy(parts.model, again, limits) == greedy(parts.model, memory, limits)


def test_a_heedful_folder_keeps_everything(tmp_path: Path) -> None:
    files.student(tmp_path / "m")
    parts = open_parts(tmp_path / "m", CPU)
    write_model(tmp_path / "ours", parts)
    again = read_model(tmp_path / "ours", CPU)
    assert again.config == parts.config
    assert again.readout == parts.readout
    assert again.source_codec.dump() == parts.source_codec.dump()
    for name, weight in parts.model.state_dict().items():
        assert torch.equal(again.model.state_dict()[name], weight), name
    assert isinstance(again.model, Transformer)
    assert again.model.shortlist is not None
    assert decode(again) == decode(parts)


def test_a_damaged_shortlist_of_a_heedful_folder_is_refused(tmp_path: Path) -> None:
    from safetensors.torch import load_file, save

    files.student(tmp_path / "m")
    write_model(tmp_path / "ours", open_parts(tmp_path / "m", CPU))
    tensors = {name: t.clone() for name, t in load_file(tmp_path / "ours" / "shortlist.safetensors").items()}
    for name, change in (
        ("offsets", lambda t: t.flip(0)),
        ("candidates", lambda t: t + 10**6),
        ("always", lambda t: t - 9),
    ):
        content = save({**tensors, name: change(tensors[name]).contiguous()})
        _replace_file(tmp_path / "ours", "shortlist.safetensors", content)
        with pytest.raises(ModelError, match=f"shortlist.safetensors.*{name if name != 'offsets' else 'offset'}"):
            read_model(tmp_path / "ours", CPU)


def _replace_file(folder: Path, name: str, content: bytes) -> None:
    """Replace a file of a model folder, and fit the checksums."""
    from hashlib import sha256

    from heedful.interop.folder import checksum

    (folder / name).write_bytes(content)
    head = json.loads((folder / "config.json").read_text())
    head["files"][name] = {"bytes": len(content), "sha256": sha256(content).hexdigest()}
    head.pop("checksum")
    (folder / "config.json").write_text(json.dumps({**head, "checksum": checksum(head)}))


def test_other_formats_refuse_a_recurrent_decoder_by_name(tmp_path: Path) -> None:
    files.student(tmp_path / "m")
    parts = open_parts(tmp_path / "m", CPU)
    for write in (write_ctranslate2, write_marian):
        with pytest.raises(ConfigError, match="ssru"):
            write(tmp_path / "out", parts)
    with pytest.raises(ConfigError, match="ssru"):
        heedful.load(tmp_path / "m", "cpu", engine="ctranslate2")


@pytest.mark.slow
def test_a_run_begins_with_a_student_and_drops_its_shortlist(tmp_path: Path) -> None:
    files.student(tmp_path / "m")
    pairs = [("the old cat", "die alte katze"), ("a dog", "ein hund")] * 8
    training = {"steps": 2, "batch_sentences": 8, "threads": 1, "device": "cpu", "valid_every": 2, "warmup": 1}
    heedful.train(pairs, tmp_path / "tuned", init=tmp_path / "m", settings={"training": training}, verbose=False)
    tuned, before = read_model(tmp_path / "tuned", CPU), open_parts(tmp_path / "m", CPU)
    assert isinstance(tuned.model, Transformer)
    assert tuned.model.shortlist is None
    assert tuned.config.model == before.config.model
    name = "decoder.0.inside.b_f"
    assert not torch.equal(tuned.model.state_dict()[name], before.model.state_dict()[name])


# What a folder may look like


def test_names_are_enough_without_a_file_of_settings(tmp_path: Path) -> None:
    files.student(tmp_path / "m")
    expected = decode(read_marian_binary(tmp_path / "m", CPU))
    (tmp_path / "m" / "config.intgemm8bitalpha.yml").unlink()
    assert format_of(tmp_path / "m") is not None
    for path in (tmp_path / "m", tmp_path / "m" / "model.xxyy.intgemm.alphas.bin"):
        assert decode(read_marian_binary(path, CPU)) == expected
    (tmp_path / "m" / "vocab.xxyy.spm").rename(tmp_path / "m" / "srcvocab.xxyy.spm")
    (tmp_path / "m" / "trgvocab.xxyy.spm").write_bytes((tmp_path / "m" / "srcvocab.xxyy.spm").read_bytes())
    assert not read_marian_binary(tmp_path / "m", CPU).config.text.joint


def test_heedful_and_transformers_folders_are_not_taken_for_marian_files(tmp_path: Path) -> None:
    files.student(tmp_path / "m")
    write_model(tmp_path / "ours", open_parts(tmp_path / "m", CPU))
    assert format_of(tmp_path / "ours") is None
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "model.bin").write_bytes(struct.pack("<I", 6) + b"TransformerSpec" * 9)
    found = format_of(tmp_path / "other")
    assert found is None or found.name == "ctranslate2"


Damage = Callable[[Path], object]


def _remove(name: str) -> Damage:
    return lambda folder: (folder / name).unlink()


def _copy(name: str, other: str) -> Damage:
    return lambda folder: (folder / other).write_bytes((folder / name).read_bytes())


def _config(**changes: Any) -> Damage:
    def change(folder: Path) -> None:
        path = folder / "config.intgemm8bitalpha.yml"
        settings = read_yaml(path.read_bytes(), "x")
        path.write_text(files.yaml({k: v for k, v in {**settings, **changes}.items() if v is not None}))

    return change


BIN, SPM, LEX, YML = (
    "model.xxyy.intgemm.alphas.bin",
    "vocab.xxyy.spm",
    "lex.50.50.xxyy.s2t.bin",
    "config.intgemm8bitalpha.yml",
)
FOLDERS: dict[str, tuple[list[Damage], str]] = {
    "no vocabulary": ([_remove(SPM)], rf"{SPM}.*cannot be read"),
    "no vocabulary, unnamed": ([_remove(SPM), _remove(YML)], "found 0 SentencePiece models"),
    "two vocabularies": ([_remove(YML), _copy(SPM, "b.spm")], r"found 2 .*b\.spm, vocab\.xxyy\.spm.*config\.yml"),
    "no weights": ([_remove(BIN)], rf"{BIN}.*cannot be read"),
    "two weights": ([_remove(YML), _copy(BIN, "b.intgemm8.bin")], r"2 files of weights, b\.intgemm8\.bin, model"),
    "two settings": ([_copy(YML, "decoder.yml")], "2 files of settings"),
    "an ensemble": ([_config(models=[BIN, BIN])], "2 models"),
    "one of three vocabularies": ([_config(vocabs=[SPM] * 3)], "3 vocabularies"),
    "elsewhere": ([_config(vocabs=["../vocab.spm", "/etc/passwd"])], "same folder"),
    "packed": ([_config(models=[BIN + ".gz"])], "gunzip"),
    "a vocabulary of another kind": ([_config(vocabs=["vocab.json"] * 2)], r"vocab\.json is not a vocabulary"),
    "a list without pieces": (
        [_config(vocabs=["v.yml"] * 2), _remove(SPM), lambda f: (f / "v.yml").write_text("a: 0")],
        r"v\.yml lists tokens, but there is no SentencePiece model",
    ),
    "no lexicon": ([_remove(LEX)], rf"{LEX}.*cannot be read"),
    "broken settings": ([lambda f: (f / YML).write_text("models:\n  x: {y: 1}")], "line 2: expected 'key: value'"),
    "absurd length": ([_config(**{"max-length-break": "many"})], "max-length-break is 'many'"),
}


@pytest.mark.parametrize("what", FOLDERS)
def test_what_is_wrong_with_a_folder_is_said(tmp_path: Path, what: str) -> None:
    files.student(tmp_path)
    damages, message = FOLDERS[what]
    for damage in damages:
        damage(tmp_path)
    with pytest.raises(ModelError, match=message):
        read_marian_binary(tmp_path, CPU)


def test_a_shortlist_as_text_is_named_and_not_used(tmp_path: Path) -> None:
    files.student(tmp_path)
    _config(shortlist=["lex.s2t.gz", 50, 50])(tmp_path)
    parts = read_marian_binary(tmp_path, CPU)
    assert isinstance(parts.model, Transformer)
    assert parts.model.shortlist is None
    assert any("lex.s2t.gz" in remark for remark in parts.remarks)


ARCHITECTURES = {
    "s2s": ({"type": "s2s"}, "type is s2s"),
    "amun": ({"type": "amun"}, "type is amun"),
    "averages": ({"transformer_decoder_autoreg": "average-attention"}, "average-attention"),
    "gru": ({"dec_cell": "gru"}, "dec-cell is 'gru'.*ssru"),
    "gelu": ({"transformer_ffn_activation": "gelu"}, "gelu"),
    "highway": ({"transformer_postprocess": "hn"}, "'hn'"),
    "three sources": ({"dim_vocabs": [9, 9, 9]}, "3 sizes"),
    "positions": ({"transformer_train_positions": True}, "transformer-train-positions"),
    "factors": ({"lemma_dim_emb": 5}, "lemma-dim-emb is 5"),
    "heads": ({"transformer_heads": 3}, "3 heads"),
    "absurd": ({"dim_emb": 2**40}, "dim-emb"),
    "large": ({"enc_depth": 64, "transformer_dim_ffn": 65536}, "no weight|has shape"),
    "many layers": ({"enc_depth": 2**20}, "layers"),
    "a word": ({"dec_depth": "two"}, "dec-depth is 'two'"),
    "another layer": ({"transformer_guided_alignment_layer": 7}, "transformer-guided-alignment-layer is '7'"),
}


@pytest.mark.parametrize("what", ARCHITECTURES)
def test_an_architecture_that_is_not_supported_is_named(tmp_path: Path, what: str) -> None:
    settings, weights = files.student(tmp_path, bits=32)
    changes, message = ARCHITECTURES[what]
    settings = {**settings, **{key.replace("_", "-"): value for key, value in changes.items()}}
    (tmp_path / BIN).write_bytes(files.write_bin(settings, weights))
    with pytest.raises(ModelError, match=message):
        read_marian_binary(tmp_path, CPU)


def _patched(at: int, kind: str, value: float) -> Callable[[bytes], bytes]:
    return lambda raw: raw[:at] + struct.pack(kind, value) + raw[at + struct.calcsize(kind) :]


def _shape(raw: bytes) -> int:
    """Return where the shapes of a .bin begin."""
    (count,) = struct.unpack_from("<Q", raw, 8)
    return 16 + 32 * count + sum(struct.unpack_from("<Q", raw, 16 + 32 * i)[0] for i in range(count))


BYTES: dict[str, tuple[Callable[[bytes], bytes], str]] = {
    "another version": (_patched(0, "<Q", 9), "version 9"),
    "too many tensors": (_patched(8, "<Q", 2**60), "tensors"),
    "many tensors": (_patched(8, "<Q", 99_999), "the file ends in the list of tensors|damaged"),
    "a long name": (_patched(16, "<Q", 2**63), "damaged"),
    "another type": (_patched(24, "<Q", 0x4801), "type 0x4801"),
    "many dimensions": (_patched(32, "<Q", 2**40), "dimensions"),
    "a long tensor": (_patched(40, "<Q", 2**40), "follow; the file is damaged"),
    "cut": (lambda raw: raw[:-300], "follow; the file is damaged"),
    "cut in its head": (lambda raw: raw[:200], "the file ends in"),
    "longer": (lambda raw: raw + bytes(5000), "follow; the file is damaged"),
    "a large shape": (lambda raw: _patched(_shape(raw), "<i", 2**31 - 1)(raw), "its shape"),
    "a negative shape": (lambda raw: _patched(_shape(raw), "<i", -1)(raw), "shape"),
    "empty": (lambda raw: b"", "the file ends in its head"),
    "no settings": (lambda raw: raw.replace(b"special:model.yml", b"special:model.xml"), "no settings"),
    "another name": (lambda raw: raw.replace(b"encoder_l1_self_Wq\0", b"encoder_l1_self_Wx\0"), "encoder_l1_self_Wq"),
}


@pytest.mark.parametrize("what", BYTES)
def test_a_damaged_bin_is_refused(tmp_path: Path, what: str) -> None:
    files.student(tmp_path)
    damage, message = BYTES[what]
    (tmp_path / BIN).write_bytes(damage((tmp_path / BIN).read_bytes()))
    with pytest.raises(ModelError, match=message):
        read_marian_binary(tmp_path, CPU)


@pytest.mark.parametrize("value", [0.0, -1.0, float("nan"), float("inf")])
def test_a_multiplier_is_a_positive_number(tmp_path: Path, value: float) -> None:
    settings, weights = files.student(tmp_path)
    _, multipliers = files.quantised(weights)
    raw = files.write_bin(settings, weights, multipliers)
    at = raw.index(struct.pack("<f", multipliers["Wemb"]))
    (tmp_path / BIN).write_bytes(_patched(at, "<f", value)(raw))
    with pytest.raises(ModelError, match="'Wemb' is divided by"):
        read_marian_binary(tmp_path, CPU)


def test_weights_that_are_not_numbers_are_refused(tmp_path: Path) -> None:
    settings, weights = files.student(tmp_path, bits=32)
    weights["encoder_l1_ffn_b1"][0, 3] = np.nan
    (tmp_path / BIN).write_bytes(files.write_bin(settings, weights))
    with pytest.raises(ModelError, match="'encoder_l1_ffn_b1' has 1 of 24 numbers"):
        read_marian_binary(tmp_path, CPU)


LEXICA: dict[str, tuple[Callable[[bytes], bytes], str]] = {
    "another magic": (_patched(0, "<Q", 5), "not a binary shortlist"),
    "many offsets": (_patched(32, "<Q", 2**61), "its head says"),
    "many tokens": (_patched(40, "<Q", 2**61), "its head says"),
    "cut": (lambda raw: raw[:-4], "its head says"),
    "cut in its head": (lambda raw: raw[:20], "20 bytes"),
    "falling": (_patched(48, "<Q", 9), "do not rise"),
    "outside": (_patched(56, "<Q", 2**63), "do not rise"),
    "an unknown token": (lambda raw: raw[:-4] + struct.pack("<I", 2**32 - 1), "target token 4294967295"),
}


@pytest.mark.parametrize("what", LEXICA)
def test_a_damaged_shortlist_is_refused(tmp_path: Path, what: str) -> None:
    files.student(tmp_path)
    damage, message = LEXICA[what]
    (tmp_path / LEX).write_bytes(damage((tmp_path / LEX).read_bytes()))
    with pytest.raises(ModelError, match=message):
        read_marian_binary(tmp_path, CPU)


def test_a_shortlist_of_another_vocabulary_is_refused(tmp_path: Path) -> None:
    files.student(tmp_path)
    (tmp_path / LEX).write_bytes(files.write_lexicon(6, files.lexicon(12)))
    with pytest.raises(ModelError, match="for 12 source tokens"):
        read_marian_binary(tmp_path, CPU)


def _npz(tmp_path: Path) -> tuple[Path, dict[str, Any], files.Arrays]:
    settings, weights = files.student(tmp_path, bits=32, shortlist=False)
    (tmp_path / BIN).unlink()
    (tmp_path / YML).unlink()
    path = tmp_path / "model.npz"
    files.write_npz(path, settings, weights)
    return path, settings, weights


def test_an_npz_is_limited_in_what_it_unpacks_to(tmp_path: Path) -> None:
    path, settings, weights = _npz(tmp_path)
    assert decode(read_marian_binary(tmp_path, CPU)) == reference(
        read_marian_binary(tmp_path, CPU), (settings, weights)
    )
    with zipfile.ZipFile(path, "a", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("zeros.npy", bytes(20_000_000))
    with pytest.raises(ModelError, match="unpacks to"):
        read_marian_binary(tmp_path, CPU)


def _member(**changes: object) -> bytes:
    """Return an .npy with another head."""
    head = {"descr": "<f4", "fortran_order": False, "shape": (2,), **changes}
    text = repr(head).encode().ljust(117) + b"\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text + bytes(8)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (_member(shape=(2**60,)), "its shape"),
        (_member(shape=(-2, -1)), "its shape"),
        (_member(descr="|O"), "holds object"),
        (_member(descr="<c8"), "holds complex64"),
        (_member(descr="|V0"), "holds|not an array"),
        (b"\x93NUMPY\x09\x00", "version"),
        (b"nothing", "not an array"),
        (b"\x93NUMPY\x01\x00\xff\xff{", "not an array"),
    ],
)
def test_arrays_with_absurd_heads_are_refused(tmp_path: Path, content: bytes, message: str) -> None:
    path, *_ = _npz(tmp_path)
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr("x.npy", content)
    with pytest.raises(ModelError, match=message):
        read_marian_binary(tmp_path, CPU)


def test_a_pickle_in_an_npz_is_not_run(tmp_path: Path) -> None:
    path, *_ = _npz(tmp_path)
    into = io.BytesIO()
    np.save(into, np.array([Trap(tmp_path / "ran")], dtype=object), allow_pickle=True)
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr("x.npy", into.getvalue())
    with pytest.raises(ModelError, match="holds object"):
        read_marian_binary(tmp_path, CPU)
    assert not (tmp_path / "ran").exists()


class Trap:
    """Makes a file when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (self.path,)


def test_yaml_is_read_as_marian_writes_it_and_no_further() -> None:
    text = '--- # x\na: 1\nb: 0.5 # half\nc: [1, two, "3"]\nd:\n  - x\n  - false\n- last\n'
    text += 'e: ""\nf: ~\n"g h": it\'s\ni: 1e-9\n'
    assert read_yaml(text.encode(), "x") == {
        **{"a": 1, "b": 0.5, "c": [1, "two", "3"], "d": ["x", False, "last"], "e": "", "f": None, "g h": "it's"},
        "i": 1e-9,
    }
    for strange in (
        "a: &b 1",
        "a: *b",
        "a: !!python/object:os.system x",
        "a: |",
        "? a",
        "a",
        "- x",
        "a: 1\na: 2",
        "\x00",
    ):
        if strange == "\x00":
            assert read_yaml(strange.encode(), "x") == {}
            continue
        with pytest.raises(ModelError, match="line"):
            read_yaml(strange.encode(), "x")
    with pytest.raises(ModelError, match="UTF-8"):
        read_yaml(b"a: \xff", "x")


def test_tokens_with_quotes_and_escapes_have_their_ids() -> None:
    lines = '"\\"": 0\n\'\'\'\': 1\n▁a: 2\n"\\u2581b": 3\n\'#\': 4\nyes: 5\n"\\x85": 6\n":": 7\n12: 8\n'
    tokens = ['"', "'", "▁a", "▁b", "#", "yes", "\x85", ":", "12"]
    assert read_ids(lines.encode(), "x") == {token: i for i, token in enumerate(tokens)}
    for strange in ("a: b", "a: 1\na: 2", "a", "- 1"):
        with pytest.raises(ModelError, match="line"):
            read_ids(strange.encode(), "x")


def test_info_names_format_precision_shortlist_and_guided_head(tmp_path: Path, heedful_cli: Callable[..., Any]) -> None:
    files.student(tmp_path)
    done = heedful_cli("info", str(tmp_path))
    for words in ("Marian's own files", "8 bits, widened to fp32", "shortlist:", "guided head (layer 2, head 1)"):
        assert words in done.out, words
    assert SPECIALS[0] not in done.out
    short = heedful_cli("translate", str(tmp_path), *SENTENCES, "--max-length", "8")
    every = heedful_cli("translate", str(tmp_path), *SENTENCES, "--max-length", "8", "--no-shortlist")
    assert short.out != every.out

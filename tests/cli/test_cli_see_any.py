"""`heedful see` of models of transformers: every option, every format, and one clear message for each mistake."""

from __future__ import annotations

import json
import pickle
import re
import shutil
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
import torch
from conftest import copies
from small_runs import small
from tiny_transformers import make

import heedful
from heedful.draw.model_attention import ModelAttention

Run = Callable[..., tuple[int, str, str]]
TEXT = "The animal did not cross the street because it was too tired."


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a tiny BERT, GPT-2 and BART."""
    folder = tmp_path_factory.mktemp("models")
    for architecture in ("bert", "gpt2", "bart"):
        make(architecture, folder / architecture)
    return folder


@pytest.fixture
def bert(models: Path) -> Path:
    return models / "bert"


def eager(folder: Path, text: str) -> np.ndarray:
    """Return the weights of all layers and heads of an encoder, by eager attention.  (L, H, T, T)."""
    from transformers import AutoModel, AutoTokenizer

    model = AutoModel.from_pretrained(folder, attn_implementation="eager").eval()
    given = AutoTokenizer.from_pretrained(folder)(text, return_tensors="pt")
    with torch.no_grad():
        weights = model(**given, output_attentions=True).attentions
    return np.stack([layer[0].numpy() for layer in weights])


def test_json_has_the_weights_of_eager_attention(heedful_cli: Run, bert: Path) -> None:
    done = heedful_cli("see", bert, TEXT, "--json")
    assert done[0] == 0
    attention = ModelAttention.build(json.loads(done[1]))
    (group,) = attention.groups
    assert (group.kind, group.source.text) == ("self", TEXT)
    assert group.backend != "eager"
    np.testing.assert_allclose(group.weights, eager(bert, TEXT), atol=1e-5)


def test_the_default_is_a_table_of_heads(heedful_cli: Run, bert: Path) -> None:
    out = heedful_cli("see", bert, TEXT)[1]
    for name in ("1.1", "2.4", "entropy", "distance", "sink", "received"):
        assert name in out


def test_one_head_a_mean_and_rollout_say_what_they_are(heedful_cli: Run, bert: Path) -> None:
    for chosen, caption in (
        (["--layer", "2", "--head", "3"], "layer 2, head 3"),
        (["--layer", "2", "--mean"], "layer 2, mean of its 4 heads"),
        (["--mean"], "mean of all layers and heads"),
        (["--rollout"], "rollout"),
        (["--view", "heatmap"], "layer"),
    ):
        done = heedful_cli("see", bert, TEXT, *chosen)
        assert (done[0], done[2]) == (0, "")
        assert caption in " ".join(done[1].split())
        assert "animal" in done[1]


def test_from_has_the_row_of_a_word_in_every_head(heedful_cli: Run, bert: Path) -> None:
    out = heedful_cli("see", bert, TEXT, "--from", "it")[1]
    rows = [line.split()[0] for line in out.splitlines() if re.match(r" *\d\.\d ", line)]
    assert rows == [f"{layer}.{head}" for layer in (1, 2) for head in (1, 2, 3, 4)]
    done = heedful_cli("see", bert, TEXT, "--from", "dog")
    assert done[0] == 2
    assert "'dog'" in done[2]


def test_words_are_joined_and_pieces_are_not(heedful_cli: Run, models: Path) -> None:
    words, pieces = (heedful_cli("see", models / "gpt2", TEXT, "--mean", unit)[1] for unit in ("--words", "--pieces"))
    assert "animal" in words
    assert len(pieces.splitlines()) > len(words.splitlines())


def test_generated_tokens_follow_the_prompt(heedful_cli: Run, models: Path) -> None:
    done = heedful_cli("see", models / "gpt2", "The animal did", "--generate", "5", "--json")
    (group,) = ModelAttention.build(json.loads(done[1])).groups
    assert group.generated is not None
    assert len(group.target.tokens) == group.generated + 5
    assert group.target.text.startswith("The animal did")
    assert group.causal


def test_encoder_decoders_have_three_kinds(heedful_cli: Run, models: Path) -> None:
    done = heedful_cli("see", models / "bart", "The animal", "--target", "La souris mange", "--json")
    groups = {group.kind: group for group in ModelAttention.build(json.loads(done[1])).groups}
    assert set(groups) == {"encoder", "decoder", "cross"}
    assert groups["cross"].target.text == "La souris mange"
    for kind, title in (("encoder", "Encoder"), ("decoder", "Decoder"), ("cross", "Cross")):
        out = heedful_cli("see", models / "bart", "The animal", "--target", "La souris", "--attention", kind, "--mean")
        assert out[0] == 0
        assert title
    done = heedful_cli("see", models / "bart", "The animal", "--generate", "4")
    assert done[0] == 0


@pytest.mark.parametrize("view", ["heads", "heatmap", "braid", "self"])
def test_every_view_is_written_to_every_format(heedful_cli: Run, bert: Path, tmp_path: Path, view: str) -> None:
    for ending in ("svg", "png", "html", "json"):
        path = tmp_path / f"{view}.{ending}"
        done = heedful_cli("see", bert, TEXT, "--view", view, "--to", path)
        assert (done[0], done[1]) == (0, "")
        assert str(path) in done[2]
        assert path.stat().st_size > 1000
    ElementTree.parse(tmp_path / f"{view}.svg")
    again = heedful_cli("see", tmp_path / f"{view}.json", "--mean")
    assert again[1] == heedful_cli("see", bert, TEXT, "--mean")[1]


def test_two_models_and_two_texts_are_side_by_side(heedful_cli: Run, models: Path, tmp_path: Path) -> None:
    page = tmp_path / "two.html"
    done = heedful_cli("see", models / "bert", "the animal", "--beside", "the street", "--to", page)
    assert done[0] == 0
    assert all(text in page.read_text(encoding="utf-8") for text in ("the animal", "the street"))
    done = heedful_cli("see", models / "bert", "the animal", "--with", models / "gpt2", "--mean")
    assert done[0] == 0


def test_sinks_are_named_and_set_apart_or_kept(heedful_cli: Run, bert: Path) -> None:
    kept = heedful_cli("see", bert, TEXT, "--mean", "--sinks", "keep")[1]
    assert "set apart" not in kept
    wrong = heedful_cli("see", bert, TEXT, "--sinks", "away")
    assert wrong[0] == 2
    assert "apart, keep" in wrong[2]


def test_text_comes_from_standard_input(heedful_cli: Run, bert: Path) -> None:
    assert (
        heedful_cli("see", bert, "-", "--mean", stdin=TEXT.encode())[1] == heedful_cli("see", bert, TEXT, "--mean")[1]
    )


class _Hostile:
    def __reduce__(self) -> tuple[object, ...]:
        return (print, ("run",))


def broken(models: Path, tmp_path: Path, what: str) -> Path:
    """Return a copy of a model that is broken in one way."""
    folder = tmp_path / what
    shutil.copytree(models / "bert", folder)
    config = json.loads((folder / "config.json").read_text())
    match what:
        case "remote":
            config = {**config, "model_type": "mine", "auto_map": {"AutoModel": "mine.Mine", "AutoConfig": "mine.C"}}
            (folder / "mine.py").write_text("raise SystemExit(9)")
            (folder / "config.json").write_text(json.dumps(config))
        case "pickle":
            (folder / "model.safetensors").unlink()
            (folder / "pytorch_model.bin").write_bytes(pickle.dumps(_Hostile()))
        case "truncated":
            whole = (folder / "model.safetensors").read_bytes()
            (folder / "model.safetensors").write_bytes(whole[: len(whole) // 2])
        case "no-weights":
            (folder / "model.safetensors").unlink()
        case "no-tokenizer":
            for path in folder.glob("tokenizer*"):
                path.unlink()
        case "unknown-type":
            (folder / "config.json").write_text(json.dumps({**config, "model_type": "nothing-known"}))
        case "damaged-config":
            (folder / "config.json").write_text('{"model_type": "bert"')
    return folder


@pytest.mark.parametrize(
    ("what", "named"),
    [
        ("remote", "--trust-remote-code"),
        ("pickle", "pytorch_model.bin"),
        ("truncated", "model.safetensors"),
        ("no-weights", "weights"),
        ("no-tokenizer", "tokenizer"),
        ("unknown-type", "nothing-known"),
        ("damaged-config", "config.json"),
    ],
)
def test_a_broken_folder_is_one_message(heedful_cli: Run, models: Path, tmp_path: Path, what: str, named: str) -> None:
    code, out, err = heedful_cli("see", broken(models, tmp_path, what), TEXT)
    assert (code, out) == (2, "")
    assert named in err
    assert len(err.strip().splitlines()) == 1


def test_wrong_arguments_are_one_message_each(heedful_cli: Run, models: Path, tmp_path: Path) -> None:
    bert, gpt2, bart = (models / name for name in ("bert", "gpt2", "bart"))
    for arguments, named in (
        ([bert], "TEXT"),
        ([bert, " "], "blank"),
        ([bert, "word " * 400], "256"),
        ([bert, TEXT, "--layer", "9"], "from 1 to 2"),
        ([bert, TEXT, "--generate", "3"], "leave out --generate"),
        ([bert, TEXT, "--target", "x"], "leave out --target"),
        ([bert, TEXT, "--view", "heatmaps"], "heatmap"),
        ([bert, TEXT, "--view", "braid"], "--to"),
        ([bert, TEXT, "--attention", "cross"], "cross"),
        ([bert, TEXT, "--rank", "size"], "entropy"),
        ([bert, TEXT, "--to", tmp_path / "x.gif"], ".svg"),
        ([bert, TEXT, "--check"], "--check"),
        ([gpt2, TEXT, "--rollout", "--layer", "1"], "layer"),
        ([bart, "a", "--target", "b", "--rollout"], "--attention encoder"),
        ([models / "nothing", TEXT], "nothing"),
        ([models / "nothing", TEXT, "--layer", "0"], "no layer 0"),  # before a model is loaded
        ([models / "nothing", TEXT, "--head", "-2"], "no head -2"),
    ):
        code, out, err = heedful_cli("see", *arguments)
        assert (code, out) == (2, ""), arguments
        assert named in err, (arguments, err)
        assert len(err.strip().splitlines()) == 1


def test_saved_summaries_are_checked_and_messages_name_options(heedful_cli: Run, bert: Path, tmp_path: Path) -> None:
    (group,) = ModelAttention.build(json.loads(heedful_cli("see", bert, TEXT, "--json")[1])).groups
    summary = replace(group, weights=None, top=group.largest([(1, 1)]))
    path = tmp_path / "x.json"
    plain = ModelAttention("m", [summary]).plain()
    path.write_text(json.dumps(plain))
    code, _, err = heedful_cli("see", path, "--layer", "1", "--head", "1")
    assert code == 2
    assert "--from WORD" in err
    assert "word=" not in err
    plain["groups"][0]["top"][0]["layer"] = 99
    path.write_text(json.dumps(plain))
    for to in ("y.html", "y.svg"):
        code, _, err = heedful_cli("see", path, "--to", tmp_path / to)
        assert code == 2
        assert "head 99.1" in err
        assert len(err.strip().splitlines()) == 1


def test_without_the_extra_the_message_says_how_to_install_it(
    heedful_cli: Run, bert: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "transformers", None)
    code, _, err = heedful_cli("see", bert, TEXT)
    assert code == 2
    assert "[hf]" in err


def test_options_of_other_models_are_refused_for_ours(heedful_cli: Run, tiny: Path) -> None:
    for option in (["--generate", "3"], ["--trust-remote-code"]):
        code, _, err = heedful_cli("see", tiny, "a b", *option)
        assert code == 2
        assert option[0] in err


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Transformer of ours, of 2 layers with 4 heads."""
    out = tmp_path_factory.mktemp("own") / "model"
    heads = {"family": "transformer", "layers": 2, "heads": 4, "width": 16, "inner": 16}
    heedful.train(copies(), out, settings={**small(), "model": heads})
    return out


def test_decoder_self_attention_of_our_own_models(heedful_cli: Run, own: Path) -> None:
    trace = heedful.load(own, "cpu").decoder_self_attention("a b c", "a b c")
    assert trace.weights is not None
    assert trace.weights.shape == (2, 4, 4, 4)
    assert trace.source.tokens[0] == "<s>"
    np.testing.assert_allclose(trace.weights.sum(-1), 1, atol=1e-5)
    assert not np.triu(trace.weights, 1).any()
    done = heedful_cli("see", own, "a b c", "--target", "a b c", "--attention", "decoder", "--json")
    groups = {group.kind: group for group in ModelAttention.build(json.loads(done[1])).groups}
    np.testing.assert_allclose(groups["decoder"].weights, trace.weights, atol=1e-5)
    encoder = heedful.load(own, "cpu").self_attention("a b c")
    np.testing.assert_allclose(groups["encoder"].weights, encoder.weights, atol=1e-5)


def test_options_for_heads_work_for_our_own_models(heedful_cli: Run, own: Path) -> None:
    for chosen in (
        ["--from", "b"],
        ["--mean"],
        ["--pieces"],
        ["--attention", "encoder", "--rollout"],
        ["--attention", "decoder", "--layer", "2", "--head", "1"],
        ["--rank", "entropy"],
        ["--sinks", "apart", "--mean"],
    ):
        done = heedful_cli("see", own, "a b c", "--target", "a b c", *chosen)
        assert (done[0], done[2]) == (0, ""), chosen


def test_a_recurrent_model_has_cross_attention_only(heedful_cli: Run, tiny: Path) -> None:
    assert heedful_cli("see", tiny, "a b", "--from", "a")[0] == 0
    code, _, err = heedful_cli("see", tiny, "a b", "--attention", "decoder")
    assert code == 2
    assert "cross" in err

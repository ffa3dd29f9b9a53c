"""AI4Bharat's transliterators: read as they are, against a plain version of their decoder, and everything on top."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from conftest import Done
from torch import Tensor, nn
from torch.nn import functional as F

import heedful
from heedful.errors import ConfigError, HeedfulError, ModelError
from heedful.interop import format_of

pytestmark = pytest.mark.usefixtures("one_thread")
GLYPHS = [*"अआकखगनमसतद", "\u094d", "\u093e", "\u0947"]
LETTERS = [*"_$#*'%!", *"abcdefghijklmnopqrstuvwxyz"]
E, D, A, INNER = 5, 6, 4, 7
V = 7 + len(GLYPHS)
WORDS = ["namaste", "a", "duniya", "mat", "zzz", "aaaaaaaaaaaaaaaa"]


def state_dict(seed: int = 1, both: bool = True) -> dict[str, Tensor]:
    """Random weights under the names that these models have."""
    torch.manual_seed(seed)
    directions = 2 if both else 1
    parts = {
        "encoder.embedding": nn.Embedding(len(LETTERS), E),
        "encoder.enc_rnn": nn.LSTM(E, D, bidirectional=both),
        "decoder.embedding": nn.Embedding(V, E),
        "decoder.dec_rnn": nn.LSTM(E + directions * D, D, num_layers=directions),
        "decoder.fc.0": nn.Linear(D, INNER),
        "decoder.fc.2": nn.Linear(INNER, V),
        "decoder.W1": nn.Linear(directions * D, A),
        "decoder.W2": nn.Linear(D, A),
        "decoder.V": nn.Linear(A, 1),
    }
    weights = {f"{name}.{key}": value for name, part in parts.items() for key, value in part.state_dict().items()}
    return {name: torch.empty_like(weight).normal_(std=0.9) for name, weight in weights.items()}


def write(folder: Path, weights: object, scripts: object = None) -> Path:
    folder.mkdir(exist_ok=True)
    torch.save(weights, folder / "hi_111_model.pth")
    content = {"glyphs": GLYPHS, "numsym_map": {"0": ["०"]}} if scripts is None else scripts
    (folder / "hi_scripts.json").write_text(json.dumps(content, ensure_ascii=False), encoding="utf-8")
    return folder


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(tmp_path_factory.mktemp("models") / "xlit", state_dict())


class Plain:
    """The decoder as its authors wrote it, with nothing of heedful."""

    def __init__(self, weights: dict[str, Tensor]) -> None:
        self.weights, layers = weights, sum(name.startswith("decoder.dec_rnn.weight_hh") for name in weights)
        self.encoder = nn.LSTM(E, D, bidirectional=layers == 2)
        self.encoder.load_state_dict(self.part("encoder.enc_rnn"))
        self.cell = nn.LSTM(E + layers * D, D, num_layers=layers, batch_first=True)
        self.cell.load_state_dict(self.part("decoder.dec_rnn"))

    def part(self, name: str) -> dict[str, Tensor]:
        return {key[len(name) + 1 :]: value for key, value in self.weights.items() if key.startswith(f"{name}.")}

    def linear(self, name: str, x: Tensor) -> Tensor:
        return F.linear(x, *self.part(f"decoder.{name}").values())

    @torch.no_grad()
    def greedy(self, word: str) -> tuple[str, np.ndarray, float]:
        """What is written, the attention weights (T, S), and the log-probability."""
        ids = [1, *(LETTERS.index(letter) for letter in word), 2]
        h, hidden = self.encoder(self.weights["encoder.embedding.weight"][ids][:, None])
        h, y, rows, written, total = h.transpose(0, 1), 1, [], [], 0.0
        for _ in range(2 * len(ids) + 20):
            q = hidden[0].sum(0)[:, None]
            alpha = torch.softmax(self.linear("V", torch.tanh(self.linear("W1", h) + self.linear("W2", q))), 1)
            c = (alpha * h).sum(1)[:, None]
            e = self.weights["decoder.embedding.weight"][y].view(1, 1, -1)
            s, hidden = self.cell(torch.cat([c, e], -1), hidden)
            logits = self.linear("fc.2", F.leaky_relu(self.linear("fc.0", s[0, 0])))
            logits[1] = -1e9  # the beginning, which heedful never writes, and neither the padding
            y = 1 + int(logits[1:].argmax())
            if len(rows) == 2 * len(ids) + 19:
                y = 2  # where heedful stops
            total += float(logits.log_softmax(0)[y])
            rows.append(alpha[0, :, 0].numpy())
            if y == 2:
                break
            written.append(y)
        return "".join("<unk>" if i == 3 else [*LETTERS[:7], *GLYPHS][i] for i in written), np.stack(rows), total


@pytest.mark.parametrize("both", [True, False])
def test_it_computes_what_its_authors_compute(both, tmp_path):
    weights = state_dict(both=both)
    plain, translator = Plain(weights), heedful.load(write(tmp_path / "m", weights), "cpu")
    for word, translation in zip(WORDS, translator.translate(WORDS), strict=True):
        text, rows, score = plain.greedy(word)
        assert translation.text == text
        assert translation.score == pytest.approx(score, abs=1e-4)
        np.testing.assert_allclose(translation.trace.weights[0, 0], rows, atol=1e-5)


def test_letters_are_the_words_of_its_traces(folder):
    trace = heedful.load(folder, "cpu").translate("Mat").trace
    assert [word.text for word in trace.source.words] == ["<s>", "M", "a", "t", "</s>"]
    assert len(trace.target.words) == len(trace.target.tokens)
    assert "<s>" not in str(trace.source.written)
    assert "<s>" not in str(heedful.load(folder, "cpu").translate("mat").alarms)


def test_a_text_is_read_word_by_word_and_all_else_stays(folder):
    translator = heedful.load(folder, "cpu")
    mat, a = (translator.translate(word).text for word in ("mat", "a"))
    text = " (mat),  a! 12 x@y.z MAT-a\n"
    assert translator.translate(text).text == f" ({mat}),  {a}! 12 x@y.z {mat}-{a}\n"
    assert translator.translate("12 34").text == "12 34"
    assert translator.translate(["12", "", "a"], trace=False)[0].text == "12"
    assert translator.translate("12", beam=2, n_best=2).n_best[0].text == "12"
    for one in (text, "12 34", "a 12"):
        assert "".join(token.text for token in translator.stream(one)) == translator.translate(one).text
        assert translator.translate(one).trace.source.text == one
    assert translator.unknown("é 12 a") == []


def test_everything_works_on_it(folder, tmp_path, heedful_cli: Callable[..., Done]):
    translator = heedful.load(folder, "cpu")
    (tmp_path / "words.txt").write_text("mat duniya\n12\n", encoding="utf-8")
    best = translator.translate("duniya", beam=4, n_best=3)
    assert len(best.n_best) == 3
    assert best.n_best[0].score >= best.n_best[1].score
    translator.translate("mat").save(tmp_path / "mat.svg")
    translator.translate("mat a").save(tmp_path / "mat.html")
    assert translator.see("mat").group("cross").weights.shape[-1] == 5
    said = heedful_cli("info", folder).out
    assert "a transliterator of AI4Bharat" in said
    assert "query" in said
    assert heedful_cli("translate", folder, "mat", "--show").out.startswith(translator.translate("mat").text)
    links = heedful_cli("translate", folder, "mat a", "--alignments").out.strip().split("\t")[1]
    assert {link.split("-")[0] for link in links.split()} <= {"0", "1"}


def test_it_is_converted_to_heedfuls_format_alone(folder, tmp_path, heedful_cli: Callable[..., Done]):
    translator = heedful.load(folder, "cpu")
    heedful_cli("convert", folder, "--out", tmp_path / "own")
    again = heedful.load(tmp_path / "own", "cpu")
    assert again.config == translator.config
    for one, other in zip(again.translate(WORDS), translator.translate(WORDS), strict=True):
        assert (one.text, one.score) == (other.text, other.score)
    for form in ("marian", "ctranslate2"):
        done = heedful_cli("convert", folder, "--out", tmp_path / form, "--to", form)
        assert done.code == 2
        assert "transformer" in done.err


@pytest.mark.slow
def test_it_begins_another_training(tmp_path):
    folder = write(tmp_path / "small", {name: 0.4 * weight for name, weight in state_dict().items()})
    pairs = [("mat", "मत"), ("sat", "सत"), ("kam", "कम"), ("dam", "दम"), ("nam", "नम"), ("man", "मन")] * 20
    settings = {"training": {"steps": 500, "rate": 0.02, "warmup": 5, "device": "cpu", "threads": 1, "patience": 99}}
    settings["training"] |= {"valid_every": 100, "batch_sentences": 32, "metric": "loss", "smoothing": 0.0}
    settings["data"] = {"duplicates": "keep"}
    heedful.train(pairs, tmp_path / "m", valid=pairs[:6], settings=settings, init=folder, verbose=False)
    translator = heedful.load(tmp_path / "m", "cpu")
    assert [one.text for one in translator.translate(["mat", "kam", "man"])] == ["मत", "कम", "मन"]


# What is damaged is named, and nothing is loaded.


def without(name: str) -> Callable[[dict[str, Any]], object]:
    return lambda weights: {key: value for key, value in weights.items() if key != name}


DAMAGED: dict[str, tuple[Callable[[dict[str, Any]], object], str]] = {
    "a weight is missing": (without("decoder.V.weight"), "decoder.V.weight"),
    "the layers are missing": (without("decoder.dec_rnn.weight_hh_l0"), "weight_hh_l0"),
    "another weight": (lambda weights: {**weights, "more": torch.zeros(1)}, "more"),
    "another shape": (lambda weights: {**weights, "decoder.W1.weight": torch.zeros(3, 3)}, "decoder.W1.weight"),
    "not a number": (lambda weights: {**weights, "decoder.V.weight": torch.full((1, A), torch.nan)}, "decoder.V"),
    "whole numbers": (lambda weights: {**weights, "decoder.V.weight": torch.ones(1, A).int()}, "int32"),
    "no dimensions": (lambda weights: {**weights, "decoder.W2.weight": torch.tensor(1.0)}, "decoder.W2.weight"),
    "empty": (lambda weights: {**weights, "decoder.fc.0.weight": torch.zeros(0, D)}, "output_inner"),
    "no weights": (lambda weights: {}, "decoder.dec_rnn"),
    "a list": (lambda weights: [1, 2], "list"),
}


@pytest.mark.parametrize("name", DAMAGED)
def test_damaged_weights_are_refused(name, tmp_path):
    change, part = DAMAGED[name]
    folder = write(tmp_path / "m", change(state_dict()))
    with pytest.raises(ModelError) as error:
        heedful.load(folder, "cpu")
    assert "hi_111_model.pth" in str(error.value)
    assert part in str(error.value)


@pytest.mark.parametrize(
    "scripts",
    [
        {},
        [],
        {"glyphs": "abc"},
        {"glyphs": []},
        {"glyphs": [1]},
        {"glyphs": ["a", "a"]},
        {"glyphs": ["a b"]},
        {"glyphs": GLYPHS[:-1]},
        {"glyphs": [*GLYPHS, "x"]},
    ],
)
def test_other_letters_are_refused(scripts, tmp_path):
    with pytest.raises(ModelError, match="hi_scripts|hi_111_model"):
        heedful.load(write(tmp_path / "m", state_dict(), scripts), "cpu")


def test_missing_and_double_files_are_named(folder, tmp_path):
    for name, pattern in (("hi_scripts.json", "_scripts.json"), ("hi_111_model.pth", "_model.pth")):
        copy = tmp_path / name
        shutil.copytree(folder, copy)
        (copy / name).unlink()
        with pytest.raises(ModelError) as error:
            heedful.load(copy, "cpu")
        assert pattern in str(error.value)
    twice = tmp_path / "twice"
    shutil.copytree(folder, twice)
    shutil.copy(twice / "hi_scripts.json", twice / "ta_scripts.json")
    with pytest.raises(ModelError, match="ta_scripts"):
        heedful.load(twice, "cpu")


def test_a_pickle_that_would_run_code_is_refused(folder, tmp_path):
    class Evil:
        def __reduce__(self) -> tuple[Any, ...]:
            return (Path.touch, (tmp_path / "ran",))

    for content in ({"encoder.embedding.weight": Evil()}, Evil()):
        with pytest.raises(ModelError):
            heedful.load(write(tmp_path / "m", content), "cpu")
    assert not (tmp_path / "ran").exists()


def test_a_truncated_file_is_refused(folder, tmp_path):
    whole = (folder / "hi_111_model.pth").read_bytes()
    for size in (0, 3, 100, len(whole) // 2, len(whole) - 1):
        copy = write(tmp_path / "m", {})
        (copy / "hi_111_model.pth").write_bytes(whole[:size])
        with pytest.raises(HeedfulError):
            heedful.load(copy, "cpu")


def test_other_folders_are_of_other_formats(tmp_path):
    assert format_of(tmp_path) is None
    assert format_of(tmp_path / "nothing") is None


def test_luongs_order_and_windows_say_what_they_cannot():
    from heedful.config import FixedConfig, RnnConfig
    from heedful.models import build

    for config, part in (
        (RnnConfig(order="luong", output="before"), "bahdanau"),
        (RnnConfig(tied=True, output_inner=4), "output_inner"),
        (RnnConfig(cell="gru", nonlinearity="relu"), "model.cell=rnn"),
        (FixedConfig(cell="lstm", nonlinearity="relu"), "lstm"),
        (RnnConfig(bridge="directions"), "decoder_layers"),
    ):
        with pytest.raises(ConfigError, match=part):
            build(config, 9, 9)

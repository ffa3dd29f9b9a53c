"""`heedful demo pronouns`: how heads are measured, that a knocked-out head is zero, and what the report says."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path

import numpy as np
import pytest
import torch

import heedful
from heedful.data.pronouns import PronounExample
from heedful.demo import DemoModel, TrainingStatus
from heedful.demo.pronouns import (
    CLASSICS,
    PRONOUNS,
    PRONOUNS_FAST,
    EncoderHead,
    PronounCase,
    PronounReport,
    best_head,
    cases,
    decoder_accuracies,
    head_accuracies,
    pronoun_page,
    pronoun_summary,
    pronouns_of,
    run_pronouns,
    score_pronouns,
    without_head,
)
from heedful.errors import ConfigError
from heedful.fused.cpu.linear import using_onednn
from heedful.models.protocol import NeedWeights

SMALL = replace(
    PRONOUNS,
    pairs=300,
    valid=12,
    test=20,
    settings=(
        *(s for s in PRONOUNS.settings if not s.startswith(("model.width", "model.inner", "training.warmup"))),
        "model.width=16",
        "model.inner=16",
        "training.warmup=5",
    ),
    models=(DemoModel("transformer", "Transformer", (), 20),),
    validations=2,
)


class Quiet:
    def __init__(self) -> None:
        self.messages: list[str] = []

    def log(self, message: str) -> None:
        self.messages.append(message)

    def update(self, statuses: Sequence[TrainingStatus]) -> None:
        pass


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, PronounReport]:
    out = tmp_path_factory.mktemp("demo") / "pronouns"
    threads = torch.get_num_threads()
    try:
        return out, run_pronouns(SMALL, out, 3, Quiet())
    finally:
        torch.set_num_threads(threads)


@pytest.fixture(scope="module")
def translator(made: tuple[Path, PronounReport]) -> heedful.Translator:
    return heedful.load(made[0] / "transformer", "cpu")


class FixedHeads:
    """A translator with two heads: one attends to the first noun, the other to the nearest; it writes references."""

    def __init__(self, given: Sequence[PronounCase]) -> None:
        self.cases = {case.example.source: case for case in given}

    def self_attention(self, source: str) -> WeightsOnly:
        case = self.cases[source]
        n = len(source.split()) + 1
        weights = np.zeros((1, 2, n, n), dtype=np.float32)
        weights[0, 0, case.pronoun, min(case.noun, case.other)] = 0.3
        weights[0, 1, case.pronoun, max(case.noun, case.other)] = 0.3
        weights[0, :, case.pronoun, [case.pronoun, n - 1]] = 0.35  # `it` itself and </s> do not count
        return WeightsOnly(weights)

    def translate(self, sources: Sequence[str], trace: bool) -> list[TextOnly]:
        return [TextOnly(self.cases[source].example.target) for source in sources]


class WeightsOnly:
    def __init__(self, weights: np.ndarray) -> None:
        self.weights = weights


class TextOnly:
    def __init__(self, text: str) -> None:
        self.text = text


def test_cases_are_ambiguous_and_balanced() -> None:
    given = list(islice(cases(1, "test"), 400))
    for case in given:
        words = case.example.source.split()
        assert words[case.pronoun] == "it"
        assert sorted((case.noun, case.other)) == list(case.example.nouns)
    assert 0.42 < np.mean([case.noun < case.other for case in given]) < 0.58
    assert 0.4 < np.mean([case.genders_differ for case in given]) < 0.6


def test_gender_of_the_two_nouns() -> None:
    source = "The animal did not cross the street because it was too wide"
    assert PronounCase(PronounExample(source, "", ()), 8, 6, 1).genders_differ
    assert not PronounCase(PronounExample(source.replace("animal", "cow"), "", ()), 8, 6, 1).genders_differ


def test_a_head_is_right_when_the_antecedent_has_the_largest_weight() -> None:
    given = list(islice(cases(1, "test"), 40))
    first = 100 * np.mean([case.noun < case.other for case in given])
    words, nouns = head_accuracies(FixedHeads(given), given)
    np.testing.assert_allclose(words, [[first, 100 - first]])
    np.testing.assert_allclose(nouns, words)


def test_the_head_is_selected_on_validation_sentences() -> None:
    given = list(islice(cases(1, "test"), 60))
    first, second = ([c for c in given if (c.noun < c.other) == earlier] for earlier in (True, False))
    fixed = FixedHeads(given)
    scores = score_pronouns("x", fixed, first, given)
    assert scores.head == EncoderHead(1, 1)
    assert scores.antecedent == pytest.approx(100 * len(first) / len(given))
    assert (scores.pronoun, scores.exact) == (100, 100)
    assert score_pronouns("x", fixed, second, given).head == EncoderHead(1, 2)
    left = score_pronouns("x", fixed, first, given, knocked_out=EncoderHead(1, 1))
    assert left.head == EncoderHead(1, 2)


def test_best_head_is_counted_from_one() -> None:
    assert best_head(np.array([[1.0, 2], [5, 3], [0, 4]])) == (2, 1)
    assert str(EncoderHead(2, 1)) == "layer 2, head 1"


def test_pronouns_of_a_sentence() -> None:
    assert pronouns_of("Il dort") == ["il"]
    assert pronouns_of("le fil et l'aile") == []
    assert pronouns_of("puisqu'elle dormait et même s'il mange") == ["elle", "il"]


def test_knocking_out_a_head_zeroes_its_output(translator: heedful.Translator) -> None:
    model = translator.parts.model
    source = CLASSICS[0][0]
    x = torch.tensor([translator.parts.source.encode(source).ids])
    keep = torch.ones_like(x, dtype=torch.bool)
    recorded = []
    layer = model.encoder[1].inside
    hook = layer.W_o.register_forward_hook(lambda module, inputs, output: recorded.append((inputs[0], output)))
    with torch.no_grad(), using_onednn(True):
        translator.to("cpu")  # packs the weights
        before = model.encode(x, keep, NeedWeights()).h
        with without_head(translator, EncoderHead(2, 3)):
            during, fast = model.encode(x, keep, NeedWeights()).h, model.encode(x, keep).h
        after = model.encode(x, keep, NeedWeights()).h
    hook.remove()
    heads, output = recorded[1]
    changed = heads.clone()
    changed[..., 2 * layer.C : 3 * layer.C] = 0
    torch.testing.assert_close(output, layer.W_o(changed))
    torch.testing.assert_close(during, fast)
    assert torch.equal(before, after)
    assert not torch.allclose(before, during)


def test_a_head_is_there_again_after_an_error(translator: heedful.Translator) -> None:
    weight = translator.parts.model.encoder[0].inside.W_o.weight
    before = weight.clone()
    with pytest.raises(KeyError), without_head(translator, EncoderHead(1, 1)):
        raise KeyError
    assert torch.equal(weight, before)
    with pytest.raises(ConfigError, match="layer 1, head 9; a layer has"), without_head(translator, EncoderHead(1, 9)):
        pass


def test_measures_are_those_of_the_weights(made: tuple[Path, PronounReport], translator: heedful.Translator) -> None:
    _, report = made
    valid = list(islice(cases(3, "valid"), SMALL.valid))
    np.testing.assert_allclose(report.heads, head_accuracies(translator, valid)[0])
    assert report.scores[0].head == best_head(report.heads)
    assert [one.name.split(",")[0] for one in report.scores[:2]] == [
        "all heads",
        f"without layer {report.scores[0].head.layer}",
    ]
    assert report.scores[1].head != report.scores[0].head
    test = list(islice(cases(3, "test"), SMALL.test))
    assert report.decoder == decoder_accuracies(translator, valid, test)
    assert report.cases == {"valid": 12, "test": 20, "genders differ": sum(case.genders_differ for case in test)}
    nearest = [[c.noun > c.other for c in test], [c.noun > c.other for c in test if c.genders_differ]]
    assert report.nearest == tuple(100 * np.mean(one) for one in nearest)


def test_the_folder_holds_all_of_it(made: tuple[Path, PronounReport], translator: heedful.Translator) -> None:
    out, report = made
    record = json.loads((out / "demo.json").read_text(encoding="utf-8"))
    assert record == json.loads(json.dumps(report.plain()))
    assert record["steps"] == 20
    assert [one["source"] for one in record["examples"]] == [source for source, _ in CLASSICS]
    assert record["examples"][0]["output"] == translator.translate(CLASSICS[0][0]).text
    for split, count in (("train", 300), ("valid", 12), ("test", 20)):
        rows = [line.split("\t") for line in (out / "corpus" / f"{split}.tsv").read_text(encoding="utf-8").splitlines()]
        assert len(rows) == count
        assert {len(row) for row in rows} == {4}
    best = report.scores[0].head
    see = f"heedful see {out / 'transformer'} --self --layer {best.layer} --head {best.head}"
    assert report.next[0][1].startswith(see)


def test_the_examples_mark_the_right_words() -> None:
    for source, (pronoun, noun, other) in CLASSICS:
        words = source.split()
        assert words[pronoun] == "it"
        assert {words[noun], words[other]} in ({"animal", "street"}, {"trophy", "suitcase"})


def test_the_page_and_the_text_have_the_numbers(made: tuple[Path, PronounReport]) -> None:
    out, report = made
    page = (out / "report.html").read_text(encoding="utf-8")
    assert page == pronoun_page(report)
    text = pronoun_summary(report, out)
    for one in report.scores:
        assert f"{one.antecedent:.1f} %" in text
        assert f"{one.pronoun:.1f}\u00a0%" in page
    for one in report.classics:
        assert one.output in text
        assert one.without_head in text
    assert page.count("<svg") == len(CLASSICS)
    assert "<script" not in page
    assert str(out / "report.html") in text


def test_the_fast_plan_is_the_same_model() -> None:
    assert PRONOUNS_FAST.pairs < PRONOUNS.pairs
    assert [m.key for m in PRONOUNS_FAST.models] == [m.key for m in PRONOUNS.models]

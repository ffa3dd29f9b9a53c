"""The opening says what the numbers say, whoever won."""

from dataclasses import replace

import pytest
from sample_report import LENGTHS, full, report, table

from heedful.draw.picture import number
from heedful.evaluation.run_report import RunReport, conclusions, contrast, description
from heedful.metrics import LengthRow, LengthTable


def run(fixed: tuple[float, ...], attention: tuple[float, ...]) -> RunReport:
    """A run with these exact matches by length."""
    made = report()
    first, second = made.models
    return replace(made, models=(replace(first, scores=table(fixed)), replace(second, scores=table(attention))))


def small(fixed: float, attention: float, pairs: int) -> RunReport:
    """A run with few test sentences: all right when short, and these exact matches when long."""

    def scores(long: float) -> LengthTable:
        rows = (LengthRow(1, 5, pairs, 100, 100, 100), LengthRow(6, None, pairs, long, long, long))
        return LengthTable(rows, rows[1], "", "")

    made = report()
    first, second = made.models
    return replace(made, models=(replace(first, scores=scores(fixed)), replace(second, scores=scores(attention))))


FALLS, STAYS = (98.0, 90.0, 70.0, 40.0, 10.0, 1.5), (99.0, 99.0, 98.0, 97.0, 91.0, 83.0)


def test_the_difference_grows_with_the_length():
    first, second = conclusions(run(FALLS, STAYS))
    assert first.startswith("“Fixed context” encodes a whole sentence as one vector")
    assert "“Additive attention” attends to all words of the source" in first
    assert second.replace("\xa0", " ") == (
        "Of the 167 longest test sentences (31–40 words), fixed context got 1.5 % exactly right and additive attention "
        "83 %; of the 212 shortest test sentences (1–5 words), 98 % and 99 %. The difference grows with the length: "
        "from the shortest to the longest sentences, fixed context lost 96.5 points and additive attention 16."
    )


def test_the_fixed_context_won():
    _, second = conclusions(run(STAYS, FALLS))
    assert "fixed context got 83\xa0% exactly right and additive attention 1.5\xa0%" in second
    assert "fixed context is better on the longest sentences" in second
    assert "grows with the length" not in second


@pytest.mark.parametrize("attention", [FALLS, (*FALLS[:-1], 2.5)])
def test_nobody_clearly_won(attention):
    _, second = conclusions(run(FALLS, attention))
    assert "fixed context and additive attention do not clearly differ on the longest sentences" in second
    assert "better" not in second


def test_ahead_at_all_lengths_is_no_bottleneck():
    _, second = conclusions(run((20.0,) * 6, (60.0,) * 6))
    assert "additive attention is better on the longest sentences, but its lead is not clearly larger" in second
    assert "grows with the length" not in second


def test_a_gap_that_opens_though_nobody_falls():
    _, second = conclusions(run((50.0,) * 6, (50.0, 50.0, 50.0, 60.0, 70.0, 90.0)))
    assert "fixed context gained 0 points and additive attention gained 40 points" in second


@pytest.mark.parametrize(("pairs", "clear"), [(1, False), (2, False), (5, True), (100, True)])
def test_a_few_sentences_prove_nothing(pairs, clear):
    assert ("grows with the length" in conclusions(small(0, 100, pairs))[1]) == clear


def test_bleu_decides_when_nothing_is_exactly_right():
    made = run((*FALLS[:-1], 0.0), (*STAYS[:-1], 0.0))
    rows = [m.scores.rows for m in made.models]
    changed = [
        replace(m, scores=replace(m.scores, rows=(*r[:-1], r[-1]._replace(bleu=bleu))))
        for m, r, bleu in zip(made.models, rows, (11.3, 64.7), strict=True)
    ]
    _, second = conclusions(replace(made, models=tuple(changed)))
    assert (
        "Neither fixed context nor additive attention got any of the 167 longest test sentences (31–40 words) exactly "
        "right, so BLEU is compared" in second
    )
    assert "fixed context reached 11.3 and additive attention 64.7" in second
    assert "grows with the length" in second
    assert "%" not in second


def third(long: float, bleu: float | None = None) -> str:
    """The conclusions if the Transformer has this exact match on the longest sentences, or this BLEU if all are 0."""
    made = full()
    models = [replace(m, scores=table(scores)) for m, scores in zip(made.models, (FALLS, STAYS, STAYS), strict=True)]
    changed = []
    for m, exact, points in zip(models, (FALLS[-1], STAYS[-1], long), (11.3, 64.7, bleu), strict=True):
        last = m.scores.rows[-1]._replace(exact=exact)
        last = last if bleu is None else last._replace(exact=0.0, bleu=points)
        changed.append(replace(m, scores=replace(m.scores, rows=(*m.scores.rows[:-1], last))))
    return conclusions(replace(made, models=tuple(changed)))[1].replace("\xa0", " ")


def test_a_third_model_is_told_too():
    first, second = conclusions(full())
    assert "“Transformer” has no recurrence" in first
    assert (
        "Transformer got 61.7\xa0% of the longest and 100\xa0% of the shortest exactly right: on the longest clearly "
        "better than fixed context and clearly worse than additive attention. Of all test sentences it got 93.3\xa0%, "
        "additive attention 96.2\xa0%." in second
    )
    made = full()
    assert "Transformer" not in " ".join(conclusions(replace(made, models=made.models[:2])))


@pytest.mark.parametrize(
    ("long", "stands"),
    [
        (0.0, "clearly worse than additive attention"),
        (1.5, "not clearly different from fixed context and clearly worse than additive attention"),
        (40.0, "clearly better than fixed context and clearly worse than additive attention"),
        (80.0, "clearly better than fixed context and not clearly different from additive attention"),
        (100.0, "clearly better than fixed context and additive attention"),
    ],
)
def test_where_the_third_stands(long, stands):
    text = third(long)
    assert f"Transformer got {number(long)} % of the longest and 99 % of the shortest exactly right: on the" in text
    assert f"{stands}. Of all test sentences it got " in text


def test_where_the_third_stands_by_bleu():
    text = third(0.0, 40.0)
    assert "Transformer reached BLEU 40 on the longest and 99.1 on the shortest: on the longest clearly" in text
    assert "better than fixed context and clearly worse than additive attention. On all test sentences it " in text
    assert text.endswith("it reached 96.2, additive attention 96.2.")


def test_nothing_is_claimed_when_nothing_can_be_compared():
    made = report()
    alone = replace(made, models=made.models[1:])
    assert contrast(alone) is None
    assert conclusions(alone) == ("Exactly right, of all test sentences: additive attention 96.2\xa0%.",)
    one_length = replace(
        made, models=tuple(replace(m, scores=replace(m.scores, rows=m.scores.rows[:1])) for m in made.models)
    )
    assert len(conclusions(one_length)) == 1
    assert conclusions(replace(made, models=())) == ()


def test_the_attention_model_is_chosen_by_its_key():
    made = full()
    assert contrast(replace(made, models=made.models[::-1])).attending.key == "attention"
    assert contrast(replace(made, models=(made.models[0], made.models[2]))).attending.key == "transformer"
    assert len(LENGTHS) == 6


def test_the_setting():
    made = report()
    assert description(made).replace("\xa0", " ") == (
        "Two models of about the same size (1.21 million and 1.24 million weights) trained on the same 23,517 "
        "sentence pairs, Hindi to English."
    )
    first, second = made.models
    unequal = replace(made, models=(first, replace(second, weights=9_000_000)))
    assert "of 1.21 million and 9.00 million weights trained" in description(unequal).replace("\xa0", " ")
    assert description(replace(made, models=(first,))).startswith(
        "One model of 1.21\xa0million weights trained on 23,517"
    )
    assert description(replace(made, models=())) == ""

"""What the demo prints: every number of it, within the columns there are."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from sample_report import example, full, report

from heedful.demo.run import _next
from heedful.draw import heatmap
from heedful.draw.terminal import columns
from heedful.evaluation.run_report import RunReport, summary

BLOCKS = "·░▒▓█"


def usual(heedful: str = ".venv/bin/heedful") -> RunReport:
    """A run with what a demo says at the end."""
    famous = example([0], True, "a fixed example")
    unseen = example([1, 2], False, "a new combination of words", "Sita is reading")
    made = report()
    return replace(made, examples=(famous, unseen, *made.examples), next=_next(Path("demo"), heedful))


@pytest.mark.parametrize("width", [120, 80, 60])
def test_lines_keep_to_the_width(width: int) -> None:
    made = usual()
    text = summary(made, Path("demo"), width)
    commands = {command for _, command in made.next}
    wide = [line for line in text.splitlines() if columns(line) > width and line not in commands]
    assert wide == []
    assert max(map(columns, text.splitlines())) > width - 10  # the room is used


@pytest.mark.parametrize("heedful", ["heedful", ".venv/bin/heedful", "python3 -m heedful"])
def test_the_commands_fit_eighty_columns(heedful: str) -> None:
    assert max(map(columns, summary(usual(heedful), Path("demo"), 80).splitlines())) <= 80


def test_what_cannot_be_broken_is_left_whole() -> None:
    out = Path("a" * 90)
    text = summary(replace(usual(), next=_next(out, "heedful")), out, 60)
    assert str(out / "report.html") in text.split()
    assert f"heedful train {out}/corpus/train.tsv --out m \\" in text.splitlines()


def test_a_folder_with_a_space_is_quoted() -> None:
    commands = [command for _, command in _next(Path("my demo"), "heedful")]
    assert commands[0].startswith("heedful translate 'my demo/attention' --show ")
    assert commands[1].startswith("heedful translate 'my demo/fixed' ")
    assert commands[2].startswith("heedful translate 'my demo/transformer' --show ")
    assert commands[4].startswith("heedful train 'my demo/corpus/train.tsv' --out m ")


def test_sentences_and_what_became_of_them() -> None:
    made = report()
    lines = summary(made, Path("demo"), 80).splitlines()
    at = lines.index("मैं खाना खा रहा हूँ")
    assert lines[at : at + 5] == [
        "मैं खाना खा रहा हूँ",
        "(the first sentence of the tour; it was in the training data)",
        "  reference           I am eating food",
        "  fixed context       I am eating food  [right]",
        "  additive attention  I am eating food  [right]",
    ]
    assert lines[at + 5 : at + 7] == ["", "attention weights of the model “additive attention”:"]
    at = lines.index("सीता किताब नहीं पढ़ रही है")
    assert lines[at + 1 : at + 5] == [
        "(negation; it was not in the training data)",
        "  reference           Sita is not reading a book",
        "  fixed context       Sita is reading a book  [wrong]",
        "  additive attention  Sita is not reading a book  [right]",
    ]


def test_all_marks() -> None:
    text = summary(report(), Path("demo"), 200)
    outputs = [(o, e.reference) for e in report().examples for o in e.outputs.values()]
    assert text.count("[right]") == sum(o == reference for o, reference in outputs) == 6
    assert text.count("[wrong]") == sum(o != reference for o, reference in outputs) == 6


def test_long_sentences_go_on_under_their_beginning() -> None:
    made = replace(report(), examples=report().examples[4:5])
    lines = summary(made, Path("demo"), 60).splitlines()
    first = next(i for i, line in enumerate(lines) if line.startswith("  additive attention"))
    last = next(i for i in range(first, len(lines)) if lines[i].endswith("[right]"))
    assert last > first
    assert {line[:22] for line in lines[first + 1 : last + 1]} == {" " * 22}
    words = " ".join(line[22:] for line in lines[first : last + 1]).split()
    assert words == [*made.examples[0].reference.split(), "[right]"]


def test_every_map_is_there() -> None:
    made = report()
    text, plain = summary(made, Path("demo"), 80), summary(made, Path("demo"), 80, ascii_only=True)
    for shown in made.examples:
        assert heatmap(shown.trace, width=80) in text
        assert heatmap(shown.trace, width=80, ascii_only=True) in plain
    assert any(c in BLOCKS for c in text)
    assert not any(c in BLOCKS for c in plain)


@pytest.mark.parametrize("made", [report(), full()], ids=["two models", "three models"])
def test_the_table_has_all_numbers(made: RunReport) -> None:
    text = summary(made, Path("demo"), 80).partition("by source length:\n\n")[2]
    head, *rows = text.partition("\n\n")[0].splitlines()
    assert head.split() == " ".join(model.title for model in made.models).split()
    assert rows[0].split() == ["source", "words", "pairs", *["exact", "%", "BLEU"] * len(made.models)]
    tables = [model.scores for model in made.models]
    for number, line in enumerate(rows[1:]):
        cells = [[*table.rows, table.total][number] for table in tables]
        label = "all" if number == len(tables[0].rows) else cells[0].label
        scores = [f"{value:.1f}" for cell in cells for value in (cell.exact, cell.bleu)]
        assert line.split() == [label, f"{cells[0].pairs:,}", *scores]
    assert len(rows) == 2 + len(tables[0].rows)
    assert len({len(line) for line in (head, *rows)}) == 1  # the columns stand under their headings


def test_alignments_files_and_costs() -> None:
    text = " ".join(summary(report(), Path("runs/x"), 80).split())
    assert (
        "Alignment error rate of the additive attention model against the gold links of 1,800 pairs: 0.083 "
        "(precision 0.91, recall 0.92; for each target word, the source words with at least half of its largest "
        "weight)." in text
    )
    assert text.count("Alignment error rate") == 1
    assert "Open runs/x/report.html in a browser" in text
    assert "demo/fixed: the fixed context model, 1,213,411 weights" in text
    assert "demo/attention: the additive attention model, 1,241,923 weights" in text
    assert "268 seconds; peak memory: 843 MB" in text
    assert "MB" not in summary(replace(report(), memory=0.0), Path("x"), 80)


def test_what_to_try_next() -> None:
    made = usual("heedful")
    lines = summary(made, Path("demo"), 80).splitlines()
    assert lines[lines.index("Next steps:") + 1 :] == [
        line for what, command in made.next for line in (f"# {what}", *command.splitlines())
    ]

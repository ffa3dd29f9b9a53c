"""`heedful readout`, `translate --alignments` and what `heedful info` says: tried as a person would."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from conftest import copies, write_pairs
from random_translators import random_folder

import heedful
from heedful.alignment import MeasuredReadout, ReadoutSelection, parse, score
from heedful.interop.folder import write_readout
from heedful.trace.readout import Readout

PAIRS = [pair for pair in copies(60, seed=5) if len(pair[0].split()) > 1][:30]
DEFAULT_RULE = "each word to its largest weight, none to </s>"


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, Path]:
    """Pairs whose words stand in the same order, and the links that say so."""
    gold = "".join(" ".join(f"{i}-{i}" for i in range(len(x.split()))) + "\n" for x, _ in PAIRS)
    (tmp_path / "gold.txt").write_text(gold)
    return write_pairs(tmp_path / "pairs.tsv", PAIRS), tmp_path / "gold.txt"


def rate(folder: Path, rows: slice) -> float:
    """The error rate of what a model aligns now."""
    sources, targets = zip(*PAIRS, strict=True)
    found = [one.pairs for one in heedful.load(folder).align(sources, targets)]
    gold = [frozenset((i, i) for i in range(len(x.split()))) for x in sources]
    return score(found[rows], gold[rows]).error_rate


@pytest.mark.parametrize("name", ["rnn", "transformer"])
def test_with_gold(heedful_cli, tmp_path, files, name):
    pairs, gold = files
    folder = random_folder(tmp_path / "m", name)
    dry = heedful_cli("readout", folder, "--gold", gold, pairs, "--dry-run", "--json")
    assert (dry.code, (folder / "readout.json").exists()) == (0, False)
    found = json.loads(dry.out)
    assert found["saved"] is None
    assert found["pairs"] == {"chosen_on": 15, "held_out": 15}
    # What is said of the usual read-out is what aligning gives, in either half.
    assert found["usual"]["rate"] == pytest.approx(rate(folder, slice(0, None, 2)), abs=1e-5)
    assert found["usual"]["held_out"] == pytest.approx(rate(folder, slice(1, None, 2)), abs=1e-5)
    done = heedful_cli("readout", folder, "--gold", gold, pairs)
    assert done.code == 0
    assert f"saved in {folder / 'readout.json'}" in done.err
    assert done.out.startswith("alignment error rate against gold links, in %; less is better\nselected on 15 pairs")
    assert [line.split()[-1] for line in done.out.splitlines() if line.endswith(("naive", "usual"))] == [
        "naive",
        "usual",
    ]
    best = found["best"][0]
    saved = heedful.load(folder).parts.readout
    told = done.out.splitlines()[-1]
    assert told.startswith(f"{saved}; links: ")
    for rule, taken in (
        ("evened", saved.even),
        ("</s> left out", saved.end == "drop"),
        ("punctuation apart", saved.marks == "apart"),
        (f"at least {saved.threshold:g} of the largest weight", saved.threshold < 1),
    ):
        assert (rule in told) is taken
    assert best["rate"] <= min(found["naive"]["rate"], found["usual"]["rate"])
    assert rate(folder, slice(0, None, 2)) == pytest.approx(best["rate"], abs=1e-5)
    assert rate(folder, slice(1, None, 2)) == pytest.approx(best["held_out"], abs=1e-5)
    told = heedful_cli("info", folder).out
    assert f"{best['rate']:.3f} on 15 pairs that it was selected on, {best['held_out']:.3f} on 15 held-out" in told
    assert json.loads(heedful_cli("info", folder, "--json").out)["readout"]["threshold"] == best["threshold"]
    assert "up to now" in heedful_cli("readout", folder, "--gold", gold, pairs, "--dry-run").out


def test_few_pairs_choose_nothing(heedful_cli, tmp_path):
    folder = random_folder(tmp_path / "m", "rnn")
    chosen = Readout(1, (1,), threshold=0.6, chosen="on gold links, by hand")
    write_readout(folder, chosen)
    for count in (2, 19):
        pairs = write_pairs(tmp_path / "few.tsv", PAIRS[:count])
        done = heedful_cli("readout", folder, pairs)
        assert (done.code, heedful.load(folder).parts.readout) == (0, chosen)
        assert f"not written ({count} pairs with links are too few to select by; give at least 20" in done.err
        stays = "the present read-out stays: layer 1, head 1; links: at least 0.6 of the largest weight"
        assert done.out.splitlines()[-1] == stays
    dry = heedful_cli("readout", folder, pairs, "--dry-run")
    assert ("not written (19 pairs" in dry.err, dry.out) == (True, done.out)
    (folder / "readout.json").unlink()
    done = heedful_cli("readout", folder, pairs)
    rules = "links: evened, </s> left out, punctuation apart"
    assert done.out.splitlines()[-1] == f"the usual read-out stays: layer 1, head 1; {rules}"
    write_readout(folder, chosen)
    record = json.loads(heedful_cli("readout", folder, pairs, "--json").out)
    assert (record["saved"], record["why_not_saved"].startswith("19 pairs with links")) == (None, True)


def test_only_a_better_one_replaces_what_is_there(heedful_cli, tmp_path, files):
    pairs, gold = files
    folder = random_folder(tmp_path / "m", "transformer")
    worse = Readout(1, (2,), end="drop", threshold=0.2, chosen="by a guess")
    write_readout(folder, worse)
    first = heedful_cli("readout", folder, "--gold", gold, pairs)
    assert (
        "readout.json; before: layer 1, head 2; links: at least 0.2 of the largest weight, </s> left out (by a guess)"
        in first.err
    )
    best = heedful.load(folder).parts.readout
    # Another one that is as good, which is not the first of them.
    equal = replace(best, label="as good")
    write_readout(folder, equal)
    again = heedful_cli("readout", folder, "--gold", gold, pairs)
    assert "not written (nothing is better than the present read-out, " in again.err
    assert heedful.load(folder).parts.readout == equal


def test_what_does_not_hold_for_other_pairs_replaces_nothing():
    best, before = MeasuredReadout(Readout(1), 0.2, 0.5), MeasuredReadout(Readout(2), 0.3, 0.4)
    named = {"usual": MeasuredReadout(Readout(), 0.4, 0.5)}
    found = ReadoutSelection([best], named | {"up to now": before}, [], "", (15, 15), best, before, 30)
    assert "higher error rate than the present read-out: 50.0 % and 40.0 %" in found.why_not_saved()
    assert found.table().endswith(f"\n\nthe present read-out stays: layer 2; links: {DEFAULT_RULE}")
    assert found._replace(before=before._replace(held_out=0.5)).why_not_saved() == ""
    kept = found._replace(before=None, named=named)
    assert (kept.why_not_saved(), kept.table().splitlines()[-1]) == ("", f"layer 1; links: {DEFAULT_RULE}")
    better = kept._replace(named={"usual": MeasuredReadout(Readout(), 0.4, 0.45)})
    assert "than the usual read-out, which needs no file: 50.0 % and 45.0 %" in better.why_not_saved()
    assert better.table().endswith(f"\n\nthe usual read-out stays: mean of all layers and heads; links: {DEFAULT_RULE}")


def test_a_choice_without_gold_has_to_be_clearly_better():
    best, usual = MeasuredReadout(Readout(1), 0.2, 0.3), MeasuredReadout(Readout(), 0.4, 0.32)
    found = ReadoutSelection([best], {"usual": usual}, [], "", (15, 15), best, None, 30, 0.015)
    assert found.why_not_saved() == ""
    wider = found._replace(margin=0.021)
    assert "here 2.1 points; the best has 30.0 %, the usual read-out 32.0 %" in wider.why_not_saved()
    assert wider.table().endswith(f"\n\nthe usual read-out stays: mean of all layers and heads; links: {DEFAULT_RULE}")
    before = MeasuredReadout(Readout(2), 0.3, 0.31)
    kept = found._replace(before=before, named={"usual": usual, "up to now": before})
    assert "here 1.5 points; the best has 30.0 %, the present read-out 31.0 %" in kept.why_not_saved()
    assert kept._replace(before=before._replace(held_out=0.32)).why_not_saved() == ""


@pytest.mark.parametrize(("place", "value"), [("POINT", 1.0), ("standard_error", 0.5)])
def test_what_is_not_clearly_better_is_saved_by_gold_alone(heedful_cli, tmp_path, files, monkeypatch, place, value):
    pairs, gold = files
    folders = [random_folder(tmp_path / name, "transformer") for name in "ab"]
    back = ["--reverse", random_folder(tmp_path / "back", "rnn", seed=2)]
    fake = value if place == "POINT" else lambda *_: value
    monkeypatch.setattr(f"heedful.alignment.select_readout.{place}", fake)
    done = heedful_cli("readout", folders[0], pairs, *back)
    assert (done.code, (folders[0] / "readout.json").exists()) == (0, False)
    assert (
        "not written (without gold links, a read-out has to be better on the held-out pairs by two standard errors"
        in done.err
    )
    assert ", here 100.0 points; the best has " in done.err
    assert f"saved in {folders[1]}" in heedful_cli("readout", folders[1], pairs, "--gold", gold).err


def test_with_a_reverse_model(heedful_cli, tmp_path, files):
    pairs, gold = files
    folder, back = random_folder(tmp_path / "m", "transformer"), random_folder(tmp_path / "back", "rnn", seed=2)
    write_readout(back, Readout(1, threshold=0.5))
    found = json.loads(heedful_cli("readout", folder, "--reverse", back, pairs, "--json").out)
    assert found["measure"] == "alignment error rate against the links of back"
    assert found["symmetries"] == []
    sources, targets = map(list, zip(*PAIRS, strict=True))
    theirs = [frozenset((t, s) for s, t in one.pairs) for one in heedful.load(back).align(targets, sources)]
    mine = [one.pairs for one in heedful.load(folder).align(sources, targets)]
    assert found["best"][0]["rate"] == pytest.approx(score(mine[::2], theirs[::2]).error_rate, abs=1e-5)
    both = heedful_cli("readout", folder, "--reverse", back, "--gold", gold, pairs)
    assert both.code == 0
    assert "combined with the other direction" in both.out
    joined = json.loads(heedful_cli("readout", folder, "--reverse", back, "--gold", gold, pairs, "--json").out)
    best = joined["symmetries"][0]
    assert heedful.load(folder).readout.symmetry == best["symmetry"]
    found = [one.pairs for one in heedful.load(folder).align(sources, targets, reverse=heedful.load(back))]
    if best["symmetry"] != "none":
        wanted = [frozenset((i, i) for i in range(len(x.split()))) for x in sources]
        assert score(found[::2], wanted[::2]).error_rate == pytest.approx(best["rate"], abs=1e-5)


def test_by_the_statistical_aligner(heedful_cli, tmp_path, files):
    folder = random_folder(tmp_path / "m", "rnn")
    done = heedful_cli("readout", folder, files[0], "--most", "20", "--json")
    assert json.loads(done.out)["measure"] == "alignment error rate against the statistical aligner's links"
    assert json.loads(done.out)["pairs"] == {"chosen_on": 10, "held_out": 10}


def test_lines_that_cannot_be_read_are_left_out_with_their_gold(heedful_cli, tmp_path, files):
    pairs, gold = files
    folder = random_folder(tmp_path / "m", "rnn")
    plain = json.loads(heedful_cli("readout", folder, "--gold", gold, pairs, "--dry-run", "--json").out)
    with pairs.open("r+") as file:
        text = file.read()
        file.seek(0)
        file.write(f"\tB\na\t\n{text}")
    gold.write_text(f"\n\n{gold.read_text()}")
    done = heedful_cli("readout", folder, "--gold", gold, pairs, "--dry-run", "--json")
    assert "skipped 2 pairs" in done.err
    assert json.loads(done.out) == plain


@pytest.mark.parametrize(
    ("name", "change", "words"),
    [
        ("fixed", (), "this model has no attention"),
        ("rnn", ("--gold-base", "1"), "gold.txt, line 1: link '0-0' is outside of its sentences"),
        ("rnn", ("--gold", "nowhere"), "nowhere"),
    ],
)
def test_what_cannot_be(heedful_cli, tmp_path, files, name, change, words):
    pairs, gold = files
    folder = random_folder(tmp_path / "m", name)
    done = heedful_cli("readout", folder, pairs, "--gold", gold, *change)
    assert (done.code, done.out) == (2, "")
    assert words in done.err
    assert not (folder / "readout.json").exists()


def test_options_about_gold_go_with_gold(heedful_cli, tmp_path, files):
    done = heedful_cli("readout", random_folder(tmp_path / "m", "rnn"), files[0], "--lenient")
    assert (done.code, "need --gold" in done.err) == (2, True)


def test_one_pair_is_too_few(heedful_cli, tmp_path):
    pairs = write_pairs(tmp_path / "p.tsv", [("a b", "A B")])
    done = heedful_cli("readout", random_folder(tmp_path / "m", "rnn"), pairs)
    assert (done.code, "1 of 1 pairs can be read" in done.err) == (2, True)


@pytest.mark.parametrize("name", ["rnn", "transformer"])
def test_alignments_of_translations(heedful_cli, tmp_path, name):
    folder = random_folder(tmp_path / "m", name)
    done = heedful_cli("translate", folder, "--alignments", stdin=b"a b. c d\n\nbead")
    assert done.code == 0
    lines = done.out.split("\n")
    assert lines[1] == ""  # a blank line stays blank
    for line, source in ((lines[0], "a b. c d"), (lines[2], "bead")):
        text, links = line.split("\t")
        assert all(s < len(source.split()) and t < len(text.split()) for s, t in parse(links))
    plain = heedful_cli("translate", folder, stdin=b"a b. c d\n\nbead")
    assert [line.split("\t")[0] for line in lines] == plain.out.split("\n")
    best = heedful_cli("translate", folder, "a b c", "--alignments", "--beam", "3", "--n-best", "2").out
    assert [len(line.split("\t")) for line in best.splitlines()] == [4, 4]
    record = json.loads(heedful_cli("translate", folder, "a b c", "--alignments", "--json").out)
    assert [word for word, _, _ in record["alignment"]["source_words"]] == ["a", "b", "c"]


def test_alignments_that_cannot_be(heedful_cli, tmp_path):
    done = heedful_cli("translate", random_folder(tmp_path / "m", "fixed"), "a b", "--alignments")
    assert (done.code, "this model has no attention" in done.err) == (2, True)
    done = heedful_cli("translate", random_folder(tmp_path / "n", "rnn"), "a b", "--alignments", "--stream")
    assert (done.code, "--stream and --alignments exclude each other" in done.err) == (2, True)


def test_a_broken_read_out_stops_only_those_who_need_it(heedful_cli, tmp_path, files):
    folder = random_folder(tmp_path / "m", "rnn")
    plain = heedful_cli("translate", folder, "a b")
    (folder / "readout.json").write_text('{"layer": 3}')
    fault = f"{folder / 'readout.json'}: there is no layer 3; choose one from 1 to 1; remove the file"
    pairs, gold = files
    for command in (
        ["translate", folder, "a b"],
        ["translate", folder, "a b", "--show"],
        ["info", folder],
        ["score", folder, pairs],
        ["evaluate", folder, pairs],
        ["see", folder, "a b"],
        ["see", folder, "a b", "--check", "--to", tmp_path / "x.svg"],
        ["report", folder, pairs, "--top", "1", "--out", tmp_path / "r.html"],
    ):
        done = heedful_cli(*command)
        assert done.code == 0, done.err
        assert f"{fault}; heedful readout makes a new one; the default read-out is used" in done.err
    assert done.err.count(fault) == 1
    assert fault in heedful_cli("convert", folder, "--out", tmp_path / "whole").err
    assert heedful.load(tmp_path / "whole").translate("a b").text == plain.out.strip()
    assert heedful_cli("translate", folder, "a b").out == plain.out
    for command in (
        ["translate", folder, "a b", "--alignments"],
        ["align", pairs, "--model", folder],
        ["readout", folder, pairs, "--gold", gold],
        ["report", folder, pairs, "--gold", gold, "--out", tmp_path / "r.html"],
    ):
        done = heedful_cli(*command)
        assert (done.code, done.out) == (2, "")
        assert fault in done.err


def test_with_a_text(heedful_cli, tmp_path):
    folder = random_folder(tmp_path / "m", "transformer")
    text = tmp_path / "text.txt"
    text.write_text("".join(f"{x}\n\n" for x, _ in PAIRS))
    done = heedful_cli("readout", folder, "--text", text, "--most", 24, "--dry-run", "--json")
    assert done.code == 0, done.err
    found = json.loads(done.out)
    assert found["measure"].endswith("the statistical aligner's links of the model's own translations")
    assert (sum(found["pairs"].values()) <= 24, found["alarms"], found["saved"]) == (True, None, None)
    assert list(folder.glob("readout.json")) == []
    for wrong, why in (
        (
            ["--text", text, write_pairs(tmp_path / "p.tsv", PAIRS)],
            "give either PAIRS, or --source and --target, or --",
        ),
        (["--text", text, "--gold", text], "--gold has no effect with --text"),
        (["--text", text, "--columns", "1,2"], "--columns has no effect with --text"),
        (["--text", tmp_path / "none.txt"], "none.txt"),
        ([], "or --text with sentences of the source language"),
    ):
        refused = heedful_cli("readout", folder, *wrong)
        assert (refused.code, why in refused.err) == (2, True), refused.err
    (tmp_path / "blank.txt").write_text("\n \n")
    assert "no sentences" in heedful_cli("readout", folder, "--text", tmp_path / "blank.txt").err

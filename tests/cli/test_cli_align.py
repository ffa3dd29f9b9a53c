"""`heedful align` as a person types it."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

Run = Callable[..., tuple[int, str, str]]

PAIRS = "das haus\tthe house\ndas buch\tthe book\n\t\nein buch\ta book\ndas haus ist alt\tthe house is old\n"
LINKS = "0-0 1-1\n0-0 1-1\n\n0-0 1-1\n0-0 1-1 2-2 3-3\n"
GOLD = "0-0 1-1\n0-0 1p1\n\n0-0 1-1\n0-0 1-1 2-2 3-2\n"


@pytest.fixture
def pairs(tmp_path: Path) -> Path:
    path = tmp_path / "pairs.tsv"
    path.write_text(PAIRS, encoding="utf-8")
    (tmp_path / "gold.txt").write_text(GOLD, encoding="utf-8")
    return path


def test_a_line_for_each_pair(heedful_cli: Run, pairs: Path) -> None:
    assert heedful_cli("align", pairs) == (0, LINKS, "10 links in 5 pairs\n")
    code, out, _ = heedful_cli("align", pairs, "--symmetry", "intersection", "--json")
    records = [json.loads(line) for line in out.splitlines()]
    assert code == 0
    assert records[1] == {"source": "das buch", "target": "the book", "links": [[0, 0], [1, 1]]}
    assert records[2] == {"source": "", "target": "", "links": []}
    assert len(records) == 5


def test_parallel_files_and_extra_pairs(heedful_cli: Run, tmp_path: Path) -> None:
    (tmp_path / "de").write_text("auto rot\n", encoding="utf-8")
    (tmp_path / "en").write_text("red car\n", encoding="utf-8")
    extra = tmp_path / "more.tsv"
    extra.write_text("rot\tred\nrot\tred\nauto\tcar\nauto\tcar\n", encoding="utf-8")
    sides = ("--source", tmp_path / "de", "--target", tmp_path / "en")
    assert heedful_cli("align", *sides, "--extra", extra)[:2] == (0, "0-1 1-0\n")


def test_gold_is_scored(heedful_cli: Run, pairs: Path) -> None:
    gold = ("--gold", pairs.with_name("gold.txt"))
    # 10 links, 9 of them possible and 8 sure, of 9 sure ones.
    said = "alignment error rate 10.53 %, precision 90.00 %, recall 88.89 % (10 links, 9 sure gold links)\n"
    out = pairs.with_name("links.txt")
    assert heedful_cli("align", pairs, *gold) == (0, LINKS, said)
    assert heedful_cli("align", pairs, *gold, "--out", out) == (0, said, "")
    assert out.read_text(encoding="utf-8") == LINKS
    assert heedful_cli("align", pairs, *gold, "--links", out) == (0, said, "")
    code, text, _ = heedful_cli("align", pairs, *gold, "--links", out, "--json")
    record = json.loads(text)
    assert (code, record["pairs"], record["links"], record["gold"]) == (0, 5, 10, 9)
    assert record["error_rate"] == pytest.approx(1 - 17 / 19)


def test_gold_links_outside_of_their_sentences(heedful_cli: Run, pairs: Path) -> None:
    gold = pairs.with_name("gold.txt")
    gold.write_text(GOLD.replace("3-2", "3-2 4-4"), encoding="utf-8")
    code, out, err = heedful_cli("align", pairs, "--gold", gold)
    assert (code, out) == (2, "")
    assert f"{gold}, line 5: link '4-4' is outside of its sentences" in err
    code, _, err = heedful_cli("align", pairs, "--gold", gold, "--lenient")
    assert code == 0
    assert f"{gold}: skipped 1 gold link" in err
    code, _, err = heedful_cli("align", pairs, "--gold", gold, "--gold-base", 1)
    assert (code, "is the file counted from 0?" in err) == (2, True)


def test_links_that_do_not_fit_are_refused(heedful_cli: Run, pairs: Path) -> None:
    links = pairs.with_name("links.txt")
    gold = ("--gold", pairs.with_name("gold.txt"))
    links.write_text(LINKS.replace("3-3", "3-4"), encoding="utf-8")
    code, _, err = heedful_cli("align", pairs, "--links", links, *gold)
    assert (code, f"{links}, line 5: link '3-4' is outside" in err) == (2, True)
    links.write_text("0-0\n", encoding="utf-8")
    code, _, err = heedful_cli("align", pairs, "--links", links, *gold)
    assert (code, f"{links} has 1 line but there are 5 sentence pairs" in err) == (2, True)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--method", "ibn"), "unknown method 'ibn'; choose one of eflomal, ibm. Did you mean 'ibm'?"),
        (("--symmetry", "both"), "unknown symmetry 'both'"),
        (("--symmetry", "product"), "multiplies the weights of two models; name them: --model and --reverse"),
        (("--links", "l", "--method", "ibm"), "leave out --method, --model, --extra and --out"),
        (("--links", "l"), "--links needs --gold"),
        (("--lenient",), "--lenient needs --gold"),
    ],
)
def test_mistakes(heedful_cli: Run, pairs: Path, options: tuple[str, ...], message: str) -> None:
    code, out, err = heedful_cli("align", pairs, *options)
    assert (code, out) == (2, "")
    assert message in err


def test_a_place_that_cannot_be_written_is_refused_before_the_work(heedful_cli: Run, pairs: Path, monkeypatch) -> None:
    monkeypatch.setattr("heedful.cli.align._statistical", lambda *_: pytest.fail("links were made"))
    for out, why in (("nowhere/x", "there is no folder"), (".", "this is a folder")):
        code, _, err = heedful_cli("align", pairs, "--out", pairs.parent / out)
        assert (code, why in err) == (2, True)


def test_one_of_each_is_said_as_one(heedful_cli: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one = tmp_path / "one.tsv"
    one.write_text("a\tb\n", encoding="utf-8")
    assert heedful_cli("align", one).err == "1 link in 1 pair\n"
    monkeypatch.setattr("heedful.translator.aligning.MOST_CELLS", 0)
    assert "1 pair of more than 0 source words times target words has no links\n" in heedful_cli("align", one).err


def test_nothing_to_align(heedful_cli: Run, tmp_path: Path) -> None:
    (tmp_path / "none.tsv").write_text("", encoding="utf-8")
    code, _, err = heedful_cli("align", tmp_path / "none.tsv")
    assert (code, "there are no sentence pairs to align" in err) == (2, True)


def test_eflomal_is_asked_for_by_name(heedful_cli: Run, pairs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    code, _, err = heedful_cli("align", pairs, "--method", "eflomal")
    assert (code, "pip install eflomal" in err) == (2, True)


@pytest.fixture
def directions(tmp_path: Path) -> tuple[Path, Path]:
    forward, reverse = tmp_path / "forward.txt", tmp_path / "reverse.txt.gz"
    forward.write_text("0-0 1-1 1-2\n\n0-0\n", encoding="utf-8")
    reverse.write_bytes(gzip.compress(b"0-0 2-1\n\n0-0 1-0\n"))
    return forward, reverse


def test_links_are_joined(heedful_cli: Run, directions: tuple[Path, Path], tmp_path: Path) -> None:
    said = "7 links in 3 pairs, symmetry: {}\n"
    joined = "0-0 1-1 1-2 2-1\n\n0-0 1-0\n"
    assert heedful_cli("align", "--join", *directions) == (
        0,
        joined,
        said.format("grow-diag-final-and").replace("7", "6"),
    )
    out = tmp_path / "out.txt.gz"
    how = ("--symmetry", "intersection")
    assert heedful_cli("align", "--join", *directions, *how, "--reversed", "--out", out) == (
        *(0, "", "3 links in 3 pairs, symmetry: intersection\n"),
    )
    assert gzip.decompress(out.read_bytes()) == b"0-0 1-2\n\n0-0\n"
    code, text, _ = heedful_cli("align", "--join", *directions, "--symmetry", "union", "--json", "--out", "-")
    assert code == 0
    assert [json.loads(line)["links"] for line in text.splitlines()] == [
        [[0, 0], [1, 1], [1, 2], [2, 1]],
        [],
        [[0, 0], [1, 0]],
    ]


def test_joined_links_are_scored(heedful_cli: Run, directions: tuple[Path, Path], tmp_path: Path) -> None:
    gold, pairs, out = tmp_path / "gold.txt", tmp_path / "pairs.tsv", tmp_path / "out.txt"
    gold.write_text("a\t1-1 2-2\nb\nc\t1-1 2p1\n", encoding="utf-8")
    pairs.write_text("a b c\tx y z\n\t\na b\tx\n", encoding="utf-8")
    # 6 links, 4 of them possible and 3 sure, of 3 sure ones.
    scores = "alignment error rate 22.22 %, precision 66.67 %, recall 100.00 % (6 links, 3 sure gold links)"
    for files in ((), (pairs,)):
        how = ("--join", *directions, "--gold", gold, "--gold-base", 1, "--out", out)
        assert heedful_cli("align", *files, *how) == (0, f"{scores}, symmetry: grow-diag-final-and\n", "")
        code, text, _ = heedful_cli("align", *files, *how, "--json")
        record = json.loads(text)
        assert (code, record["pairs"], record["links"]) == (0, 3, 6)
        assert record["symmetry"] == "grow-diag-final-and"
        assert record["error_rate"] == pytest.approx(1 - 7 / 9)
    pairs.write_text("a b c\tx y\n\t\na b\tx\n", encoding="utf-8")
    code, _, err = heedful_cli("align", pairs, "--join", *directions)
    assert code == 2
    assert f"{directions[0]}, line 1: link '1-2' is outside" in err


def test_what_cannot_be_joined(heedful_cli: Run, directions: tuple[Path, Path], tmp_path: Path) -> None:
    forward, reverse = directions
    (tmp_path / "short.txt").write_text("0-0\n", encoding="utf-8")
    (tmp_path / "bad.txt").write_text("0-0\n0-\n0-0\n", encoding="utf-8")
    out = tmp_path / "out.txt"
    for options, message in (
        (("--join", forward, tmp_path / "short.txt"), "forward.txt has 3 lines but "),
        (("--join", tmp_path / "bad.txt", reverse), "bad.txt, line 2: expected links"),
        (("--join", forward, tmp_path / "none.txt"), "none.txt: there is no such file"),
        (("--join", forward, reverse, "--symmetry", "product"), "product multiplies weights, and --join"),
        (("--join", forward, reverse, "--symmetry", "grow"), "Did you mean 'grow-diag'?"),
        (("--join", forward, reverse, "--model", "m"), "--model has no effect with --join"),
        (("--join", forward, reverse, "--links", forward), "leave out"),
        (("--join", forward, reverse, "--threads", 2), "--threads has no effect with --join"),
        (("--join", "-", "-"), "only one of the two files"),
        (("--reversed",), "--reversed has no effect without --join"),
    ):
        code, text, err = heedful_cli("align", *options, "--out", out)
        assert (code, text, message in err) == (2, "", True), err
        assert not out.exists()


def test_ids_before_sentences_and_links_are_left_out(heedful_cli: Run, tmp_path: Path) -> None:
    for name, lines in {
        "de": "0\tdas haus\n1\tdas buch\n2\t\n",
        "en": "0\tthe house\n1\tthe book\n2\ta house\n",
        "gold": "0\t0-0 1-1\n1\t0-0 1-1\n2\t\n",
    }.items():
        (tmp_path / name).write_text(lines, encoding="utf-8")
    sides = ("--source", tmp_path / "de", "--target", tmp_path / "en")
    code, out, err = heedful_cli("align", *sides, "--gold", tmp_path / "gold")
    assert (code, out) == (0, "0-0 1-1\n0-0 1-1\n\n")
    assert "left out the ids" in err
    assert "error rate 0.00 %" in err


def test_joining_loads_no_torch(directions: tuple[Path, Path]) -> None:
    code = (
        "import sys; from heedful.cli import main; sys.argv[0] = 'heedful'\n"
        "try: main()\n"
        "except SystemExit as end: assert not end.code\n"
        "assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code, "align", "--join", *map(str, directions)], check=True)

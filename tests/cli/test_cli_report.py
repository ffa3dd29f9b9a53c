"""`heedful report`: a page about models on a test set, with gold links, files of translations, and clear refusals."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from conftest import copies, write_pairs

import heedful
from heedful.alignment import score


@pytest.fixture
def exam_file(tmp_path: Path) -> Path:
    return write_pairs(tmp_path / "test.tsv", copies(12, seed=3))


def test_a_page_about_a_model_and_a_file(heedful_cli, tiny, exam_file, tmp_path):
    gold = tmp_path / "gold.txt"
    rows = [line.split("\t")[0].split() for line in exam_file.read_text().splitlines()]
    gold.write_text("".join(" ".join(f"{i}-{i}" for i in range(len(row))) + "\n" for row in rows))
    file = tmp_path / "perfect.txt"
    file.write_text("".join(f"{' '.join(row).upper()}\n" for row in rows))
    out = tmp_path / "page.html"
    done = heedful_cli("report", tiny, file, exam_file, "--out", out, "--gold", gold, "--top", 3, "--json")
    assert done.code == 0, done.err
    assert str(out) in done.err
    found = json.loads(done.out)
    model, perfect = found["systems"]
    assert found["pairs"] == 12
    assert (model["name"], perfect["name"]) == ("model", "perfect.txt")
    assert perfect["scores"]["exact"] == 100
    assert perfect["alignment"] is None
    assert 0 <= model["alignment"]["error_rate"] <= 1
    low, high = model["intervals"]["bleu"]
    assert low <= model["scores"]["bleu"] <= high
    page = out.read_text(encoding="utf-8")
    assert page.count("<article>") == page.count('class="heedful-view"') == 3
    scores = [float(score) for score in re.findall(r"</svg>model · chrF ([0-9.]+)", page)]
    assert scores == sorted(scores)
    assert "steps of training" in page


def test_two_folders_of_one_name_are_told_apart(heedful_cli, tiny, exam_file, tmp_path):
    other = tmp_path / tiny.name
    other.symlink_to(tiny)
    done = heedful_cli(
        "report", tiny, other, exam_file, "--out", tmp_path / "p.html", "--top", 0, "--resamples", 0, "--json"
    )
    assert done.code == 0, done.err
    assert [one["name"] for one in json.loads(done.out)["systems"]] == [str(tiny), str(other)]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["MODEL"], "then the file of test sentences"),
        (["MODEL", "MODEL"], "is a folder"),
        (["MODEL", "TEST", "--out", "page.txt"], ".html"),
        (["MODEL", "TEST", "--gold", "BAD"], "line 1"),
    ],
)
def test_what_cannot_be_is_refused(heedful_cli, tiny, exam_file, tmp_path, arguments, said):
    bad = tmp_path / "bad.txt"
    bad.write_text("99-99\n" + "0-0\n" * 11)
    names = {"MODEL": tiny, "TEST": exam_file, "BAD": bad}
    done = heedful_cli("report", *(names.get(one, one) for one in arguments))
    assert done.code == 2
    assert said in done.err


def test_a_sentence_that_is_too_long_for_links_costs_only_its_links(heedful_cli, tiny, exam_file, tmp_path):
    with exam_file.open("a") as file:
        file.write("a b " * 200 + "\t" + "a b " * 200 + "\n")
    gold = tmp_path / "gold.txt"
    rows = [line.split("\t") for line in exam_file.read_text().splitlines()]
    kept = [(x, y) for x, y in rows[:12]]
    gold.write_text("".join(f"0-0{' 1p1' * (len(x.split()) > 1)}\n" for x, _ in rows))
    done = heedful_cli("report", tiny, exam_file, "--out", tmp_path / "page.html", "--gold", gold, "--json")
    assert done.code == 0, done.err
    assert "without 1 of 13 pairs" in done.err
    found = json.loads(done.out)["systems"][0]["alignment"]
    links = heedful.load(tiny, "cpu").align(*map(list, zip(*kept, strict=True)))
    sure = [frozenset({(0, 0)})] * 12
    possible = [frozenset({(0, 0), (1, 1)} if len(x.split()) > 1 else {(0, 0)}) for x, _ in kept]
    wanted = score([one.pairs for one in links], sure, possible)
    assert (found["error_rate"], found["recall"]) == pytest.approx((wanted.error_rate, wanted.recall))

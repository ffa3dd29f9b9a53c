"""`heedful corpus` as a person types it: columns, directions, lengths, splits, and mistakes."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from itertools import islice
from pathlib import Path

import pytest
from conftest import ROOT

from heedful.data import pronouns
from heedful.data.hindi import generate
from heedful.data.scenes import scenes

Run = Callable[..., tuple[int, str, str]]


def rows(cli: Run, *options: object) -> list[list[str]]:
    """The columns of each line that `heedful corpus hindi` writes."""
    code, out, err = cli("corpus", "hindi", *options)
    assert (code, err) == (0, "")
    return [line.split("\t") for line in out.splitlines()]


def links(text: str) -> set[tuple[int, ...]]:
    return {tuple(map(int, link.split("-"))) for link in text.split()}


def test_two_columns_and_those_asked_for(heedful_cli: Run) -> None:
    made = [e.seen_from("hi-en") for e in islice(generate(4), 150)]
    common = ("--pairs", 150, "--seed", 4)
    plain = [[s.source, s.target] for s in made]
    aligned = [" ".join(f"{i}-{j}" for i, j in s.links) for s in made]
    marked = [" ".join(f"{i}-{j}" for i, j in s.antecedents) for s in made]
    assert rows(heedful_cli, *common) == plain
    assert rows(heedful_cli, *common, "--alignments") == [[*p, a] for p, a in zip(plain, aligned, strict=True)]
    assert rows(heedful_cli, *common, "--antecedents") == [[*p, a] for p, a in zip(plain, marked, strict=True)]
    both = rows(heedful_cli, *common, "--antecedents", "--alignments")
    assert both == [[*p, a, b] for p, a, b in zip(plain, aligned, marked, strict=True)]
    assert any(marked)
    assert not all(marked)  # then the column is there, and empty


def test_json_has_everything(heedful_cli: Run) -> None:
    code, out, _ = heedful_cli("corpus", "hindi", "--pairs", 30, "--json")
    records = [json.loads(line) for line in out.splitlines()]
    lines = rows(heedful_cli, "--pairs", 30, "--alignments", "--antecedents")
    assert code == 0
    for record, (source, target, aligned, marked) in zip(records, lines, strict=True):
        assert list(record) == ["source", "target", "links", "antecedents"]
        assert (record["source"], record["target"]) == (source, target)
        assert " ".join(f"{i}-{j}" for i, j in record["links"]) == aligned
        assert " ".join(f"{i}-{j}" for i, j in record["antecedents"]) == marked


def test_english_to_hindi_is_the_same_from_the_other_side(heedful_cli: Run) -> None:
    short = ("--pairs", 300, "--max-words", 4, "--alignments")
    forth = {(hindi, english): links(a) for hindi, english, a in rows(heedful_cli, *short)}
    back = {(h, e): links(a) for e, h, a in rows(heedful_cli, *short, "--direction", "en-hi")}
    both = forth.keys() & back.keys()
    assert len(both) > 10
    assert all(forth[pair] == {(i, j) for j, i in back[pair]} for pair in both)
    assert any(forth[pair] != back[pair] for pair in both)


def test_english_to_hindi_has_everything_turned_around(heedful_cli: Run) -> None:
    made = list(islice(generate(1, count_english=True), 100))
    code, out, _ = heedful_cli("corpus", "hindi", "--pairs", 100, "--direction", "en-hi", "--json")
    assert code == 0
    for example, line in zip(made, out.splitlines(), strict=True):
        record = json.loads(line)
        assert (record["source"], record["target"]) == (example.english, example.hindi)
        assert record["links"] == sorted([j, i] for i, j in example.links)
        assert record["antecedents"] == [list(pair) for pair in example.english_antecedents]


@pytest.mark.parametrize("direction", ["hi-en", "en-hi"])
@pytest.mark.parametrize(("low", "high"), [(2, 3), (7, 7), (12, 15)])
def test_lengths_are_those_of_the_source(heedful_cli: Run, direction: str, low: int, high: int) -> None:
    options = ("--pairs", 60, "--direction", direction, "--min-words", low, "--max-words", high)
    sides = [[len(side.split()) for side in row] for row in rows(heedful_cli, *options)]
    assert {source for source, _ in sides} == set(range(low, high + 1))
    assert not all(low <= target <= high for _, target in sides)


def test_splits_are_apart(heedful_cli: Run) -> None:
    found = {
        split: {row[0] for row in rows(heedful_cli, "--pairs", 80, "--split", split)}
        for split in ("train", "valid", "test")
    }
    assert found["train"] == {row[0] for row in rows(heedful_cli, "--pairs", 80)}
    assert all(len(sentences) == 80 for sentences in found.values())
    assert len(set.union(*found.values())) == 240


def test_the_seed_decides(heedful_cli: Run) -> None:
    first = rows(heedful_cli, "--pairs", 50)
    assert rows(heedful_cli, "--pairs", 50, "--seed", 1) == first
    assert rows(heedful_cli, "--pairs", 20) == first[:20]
    assert rows(heedful_cli, "--pairs", 50, "--seed", 2) != first


def test_pronouns(heedful_cli: Run) -> None:
    made = list(islice(pronouns.generate(3, "test", 9, 12), 40))
    options = ("corpus", "pronouns", "--pairs", 40, "--seed", 3, "--split", "test", "--min-words", 9, "--max-words", 12)
    code, out, err = heedful_cli(*options, "--alignments", "--antecedents")
    assert (code, err) == (0, "")
    for example, line in zip(made, out.splitlines(), strict=True):
        source, target, aligned, antecedents = line.split("\t")
        assert (source, target) == (example.source, example.target)
        assert links(aligned) == set(example.links)
        assert links(antecedents) == set(example.antecedents)
    code, out, err = heedful_cli(*options, "--json")
    assert (code, err) == (0, "")
    first = json.loads(out.splitlines()[0])
    assert list(first) == ["source", "target", "links", "antecedents", "nouns"]
    assert first["nouns"] == list(made[0].nouns)


def test_scenes(heedful_cli: Run, tmp_path: Path) -> None:
    made = list(scenes(5, seed=3, split="valid", language="hi", size=96, objects=(2, 3)))
    options = ("--pairs", 5, "--seed", 3, "--split", "valid", "--language", "hi", "--pixels", 96, "--objects", "2-3")
    code, out, err = heedful_cli("corpus", "scenes", "--out", tmp_path / "one", *options)
    assert (code, out) == (0, "")
    assert "5 scenes" in err
    rows = (tmp_path / "one" / "captions.csv").read_text(encoding="utf-8").splitlines()
    assert rows == ["image,caption", *(f"00000{i}.png,{scene.caption}" for i, scene in enumerate(made, 1))]
    assert len(list((tmp_path / "one" / "images").iterdir())) == 5
    code, out, _ = heedful_cli("corpus", "scenes", "--out", tmp_path / "two", *options, "--json")
    lines = [json.loads(line) for line in out.splitlines()]
    assert [line["captions"] for line in lines] == [scene.captions for scene in made]
    assert [line["regions"] for line in lines] == [[list(region) for region in scene.regions] for scene in made]
    assert lines[0]["objects"][0]["kind"] == made[0].objects[0].kind
    before = (tmp_path / "one" / "regions.jsonl").read_bytes()
    code, out, err = heedful_cli("corpus", "scenes", "--out", tmp_path / "one")
    assert (code, out) == (2, "")
    assert str(tmp_path / "one") in err
    assert "captions.csv" in err
    assert (tmp_path / "one" / "regions.jsonl").read_bytes() == before
    assert len(list((tmp_path / "one" / "images").iterdir())) == 5


# ---- mistakes


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["hind"], "unknown corpus 'hind'; choose one of hindi, pronouns, scenes. Did you mean 'hindi'?"),
        (["hindi", "--split", "tests"], "choose one of test, train, valid. Did you mean 'test'?"),
        (["hindi", "--direction", "en-fr"], "unknown direction 'en-fr'; choose one of en-hi, hi-en."),
        (["hindi", "--min-words", 1], "sentences of 1 to 50 words were asked for; they have from 2 to 50"),
        (["hindi", "--max-words", 51], "sentences of 2 to 51 words were asked for"),
        (["hindi", "--min-words", 9, "--max-words", 8], "the least must not be above the most"),
        (["pronouns", "--direction", "hi-en"], "--direction hi-en: the corpus pronouns is English to French"),
        (["pronouns", "--max-words", 33], "sentences of 3 to 33 words were asked for; they have from 3 to 32"),
        (["pronouns", "--split", "tests"], "choose one of test, train, valid. Did you mean 'test'?"),
        (["hindi", "--out", "d"], "--out has no effect for hindi"),
        (["pronouns", "--objects", "1-2"], "--objects has no effect for pronouns"),
        (["scenes"], "--out"),
        (["scenes", "--out", "d", "--direction", "hi-en"], "--direction has no effect for scenes"),
        (["scenes", "--out", "d", "--max-words", 9], "--max-words has no effect for scenes"),
        (["scenes", "--out", "d", "--alignments"], "--alignments has no effect for scenes"),
        (["scenes", "--out", "d", "--objects", "many"], "--objects many: expected a number from 1 to 4"),
        (["scenes", "--out", "d", "--objects", "2-5"], "--objects 2-5: expected a number from 1 to 4"),
        (["scenes", "--out", "d", "--language", "fr"], "choose one of en, hi"),
        (["scenes", "--out", "d", "--split", "tests"], "choose one of test, train, valid. Did you mean 'test'?"),
        (["hindi", "--pairs", 0], "--pairs"),
        (["hindi", "--pairs", "many"], "--pairs"),
        ([], "Missing argument"),
    ],
)  # fmt: skip
def test_mistakes(
    heedful_cli: Run, options: list[object], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    code, out, err = heedful_cli("corpus", *options)
    assert (code, out) == (2, "")
    assert message in err
    assert not list(tmp_path.iterdir())


def test_more_than_there_are(heedful_cli: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    few = list(islice(generate(1, max_words=2), 5))
    drawn = iter(few * 300)
    monkeypatch.setattr("heedful.data.hindi._sentence", lambda *_: next(drawn))
    code, out, err = heedful_cli("corpus", "hindi", "--max-words", 2, "--pairs", 6)
    assert (code, len(out.splitlines())) == (2, 5)
    assert err == (
        "heedful: after 5 sentences of 2 to 2 words for train, no new one came up in 200 tries; "
        "allow longer ones, or ask for fewer\n"
    )


@pytest.mark.slow
@pytest.mark.parametrize("direction", ["hi-en", "en-hi"])
def test_more_than_there_really_are(heedful_cli: Run, direction: str) -> None:
    options = ("--max-words", 2, "--pairs", 100_000, "--split", "valid", "--direction", direction)
    code, out, err = heedful_cli("corpus", "hindi", *options)
    found = out.splitlines()
    assert code == 2
    assert f"after {len(found)} sentences of 2 to 2 words for valid, no new one came up" in err
    assert len(set(found)) == len(found) > 10


# ---- what only a process can show


def test_a_reader_that_goes_away_is_no_error() -> None:
    command = f"{sys.executable} -m heedful corpus hindi --pairs 100000 | head -1"
    done = subprocess.run(["bash", "-c", command], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.count("\n") == 1
    assert done.stderr == ""


@pytest.mark.slow
@pytest.mark.parametrize("split", ["train", "valid", "test"])
def test_every_process_makes_the_same(environment: dict[str, str], split: str) -> None:
    """Sets of strings come in another order in every process: nothing may follow from that."""
    made = set()
    for hashing in ("0", "1"):
        lines = b""
        for direction in ("hi-en", "en-hi"):
            options = ["--pairs", "60", "--split", split, "--direction", direction, "--json"]
            command = [sys.executable, "-m", "heedful", "corpus", "hindi", *options]
            variables = {**environment, "PYTHONHASHSEED": hashing}
            lines += subprocess.run(command, env=variables, capture_output=True, check=True).stdout
        command = [sys.executable, "-m", "heedful", "corpus", "pronouns", "--split", split, "--json"]
        lines += subprocess.run(command, env=variables, capture_output=True, check=True).stdout
        made.add(lines)
    assert len(made) == 1


def test_torch_is_not_needed(environment: dict[str, str]) -> None:
    grammars = "from heedful.data.hindi import pairs; from heedful.data.pronouns import pairs as others"
    script = f"import sys; {grammars}; pairs(2); others(2); print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, env=environment, check=True)
    assert done.stdout == "False\n"


@pytest.mark.parametrize("options", [("--pixels", "8"), ("--objects", "5"), ("--objects", "3-1")])
def test_wrong_options_of_scenes_are_named_as_typed(heedful_cli: Run, tmp_path: Path, options: tuple[str, str]) -> None:
    done = heedful_cli("corpus", "scenes", "--out", tmp_path / "s", *options)
    assert done.code == 2
    assert " ".join(options) in done.err

"""`heedful evaluate`: models and files of translations, one reference or several, intervals, significance."""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest
import sacrebleu
from conftest import Done, copies, write_pairs
from random_translators import random_folder

import heedful

Run = Callable[..., Done]

ROWS = copies(40, seed=5, longest=12)
SOURCES, TARGETS = (list(side) for side in zip(*ROWS, strict=True))


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return random_folder(tmp_path_factory.mktemp("random") / "m", "rnn")


@pytest.fixture
def pairs(tmp_path: Path) -> Path:
    return write_pairs(tmp_path / "test.tsv", ROWS)


def lines(path: Path, texts: list[str]) -> Path:
    path.write_text("".join(f"{text}\n" for text in texts), encoding="utf-8")
    return path


def spoiled(every: int, word: str = "Z") -> list[str]:
    """The targets with the first word of some wrong."""
    return [" ".join([word, *t.split()[1:]]) if i % every == 0 else t for i, t in enumerate(TARGETS)]


def theirs(outputs: list[str], *references: list[str]) -> dict[str, float]:
    return {
        "bleu": sacrebleu.corpus_bleu(outputs, references).score,
        "chrf": sacrebleu.corpus_chrf(outputs, references).score,
        "ter": sacrebleu.corpus_ter(outputs, references).score,
    }


def test_a_model_is_scored_as_its_translations_are(heedful_cli: Run, model: Path, pairs: Path, tmp_path: Path) -> None:
    saved = tmp_path / "out.txt"
    code, out, _ = heedful_cli("evaluate", model, pairs, "--json", "--save", saved, "--device", "cpu")
    assert code == 0
    record = json.loads(out)
    outputs = [one.text for one in heedful.load(model, "cpu").translate(SOURCES, split=False, trace=False)]
    assert saved.read_text(encoding="utf-8").splitlines() == outputs
    assert {name: record[name] for name in ("bleu", "chrf", "ter")} == pytest.approx(theirs(outputs, TARGETS))
    again = json.loads(heedful_cli("evaluate", saved, pairs, "--json").out)
    assert {**again, "model": ""} == {**record, "model": ""}


def test_the_record(heedful_cli: Run, pairs: Path, tmp_path: Path) -> None:
    record = json.loads(heedful_cli("evaluate", lines(tmp_path / "o", spoiled(3)), pairs, "--json").out)
    assert record.keys() == {
        *("model", "pairs", "bleu", "chrf", "ter", "exact", "bleu_signature", "chrf_signature", "ter_signature"),
        *("by_length", "intervals", "resamples", "seed"),
    }
    assert (record["pairs"], record["resamples"], record["seed"]) == (40, 1000, 12345)
    assert sum(row["pairs"] for row in record["by_length"]) == 40
    assert record["by_length"][0].keys() == {"low", "high", "pairs", "bleu", "chrf", "ter", "exact"}
    for name, (low, high) in record["intervals"].items():
        assert low < record[name] < high
    assert record["exact"] == pytest.approx(65.0)


def test_the_table(heedful_cli: Run, pairs: Path, tmp_path: Path) -> None:
    file = lines(tmp_path / "o", spoiled(3))
    code, out, err = heedful_cli("evaluate", file, pairs)
    assert (code, err) == (0, "")
    table = out.splitlines()
    assert table[0].split() == ["source", "words", "pairs", "BLEU", "chrF", "TER", "exact", "%"]
    wanted = theirs(spoiled(3), TARGETS)
    total = next(line.split() for line in table if line.startswith("all"))
    assert total == ["all", "40", *(f"{wanted[name]:.1f}" for name in ("bleu", "chrf", "ter")), "65.0"]
    assert re.search(r"^95 % from +\d+\.\d +\d+\.\d +\d+\.\d +\d+\.\d$", out, re.MULTILINE)
    assert f"TER:  nrefs:1|case:lc|tok:tercom|norm:no|punct:yes|asian:no|version:{sacrebleu.__version__}" in table
    assert "all scores are of NFC text; lower TER is better" in table
    assert table[-1] == "intervals: bootstrap, 1,000 resamples, seed 12345"
    assert max(map(len, table)) <= 80
    few = heedful_cli("evaluate", file, pairs, "--resamples", "0").out
    assert "95 %" not in few
    assert "bootstrap" not in few


def test_the_tokenizer_of_bleu(heedful_cli: Run, pairs: Path, tmp_path: Path) -> None:
    file = lines(tmp_path / "o", spoiled(3))
    chosen = ("--tokenize", "char")
    assert "BLEU: nrefs:1|case:mixed|eff:no|tok:char|" in heedful_cli("evaluate", file, pairs, *chosen).out
    assert "BLEU: nrefs:1|case:mixed|eff:no|tok:char|" in heedful_cli("compare", file, file, pairs, *chosen).out
    page = tmp_path / "page.html"
    assert heedful_cli("report", file, pairs, "--out", page, *chosen).code == 0
    assert "tok:char" in page.read_text(encoding="utf-8")
    for command in (("evaluate", file), ("compare", file, file), ("report", file)):
        code, out, err = heedful_cli(*command, pairs, "--tokenize", "14a")
        assert (code, out) == (2, "")
        assert "unknown tokenizer '14a'; choose one of 13a, char, flores200, intl, none, zh" in err


@pytest.mark.parametrize("way", ["columns", "names", "files"])
def test_several_references(heedful_cli: Run, tmp_path: Path, way: str) -> None:
    second, third = spoiled(2, "Y"), ["" if i % 4 else t for i, t in enumerate(TARGETS)]
    outputs = lines(tmp_path / "o", spoiled(2, "Y")[:20] + spoiled(3)[20:])
    if way == "files":
        with gzip.open(tmp_path / "r2.gz", "wt", encoding="utf-8") as file:
            file.write("".join(f"{text}\n" for text in second))
        given = ["--source", lines(tmp_path / "s", SOURCES), "--reference", lines(tmp_path / "r1", TARGETS)]
        given += ["--reference", tmp_path / "r2.gz", "--reference", lines(tmp_path / "r3", third)]
    elif way == "columns":
        rows = zip(second, SOURCES, TARGETS, third, strict=True)
        lines(tmp_path / "t.tsv", ["\t".join(row) for row in rows])
        given = [tmp_path / "t.tsv", "--columns", "2,3,1,4"]
    else:
        rows = zip(SOURCES, TARGETS, second, third, strict=True)
        made = [json.dumps(dict(zip("sabc", row, strict=True))) for row in rows]
        given = [lines(tmp_path / "t.jsonl", made), "--columns", "s,a,b,c"]
    code, out, err = heedful_cli("evaluate", outputs, *given, "--json")
    assert (code, err) == (0, "")
    record = json.loads(out)
    streams = TARGETS, second, [text or None for text in third]
    wanted = theirs(outputs.read_text(encoding="utf-8").splitlines(), *streams)
    assert {name: record[name] for name in wanted} == pytest.approx(wanted)
    assert "nrefs:var" in record["bleu_signature"]


def test_blank_lines_keep_their_place(heedful_cli: Run, model: Path, tmp_path: Path) -> None:
    (tmp_path / "t.tsv").write_text("a b\tA B\n\nc\t\n\tD\ne f\tE F\n")
    code, out, err = heedful_cli("evaluate", model, tmp_path / "t.tsv", "--json", "--save", tmp_path / "o")
    assert code == 0
    assert "skipped 3 lines with an empty side" in err
    assert json.loads(out)["pairs"] == 2
    saved = (tmp_path / "o").read_text(encoding="utf-8").split("\n")
    assert (len(saved), saved[1:4], saved[5]) == (6, ["", "", ""], "")
    again = json.loads(heedful_cli("evaluate", tmp_path / "o", tmp_path / "t.tsv", "--json").out)
    assert again["bleu"] == json.loads(out)["bleu"]


def test_translations_from_stdin(heedful_cli: Run, pairs: Path) -> None:
    done = heedful_cli("evaluate", "-", pairs, "--json", stdin="\n".join(TARGETS).encode())
    assert json.loads(done.out)["exact"] == 100.0
    code, _, err = heedful_cli("evaluate", "-", "-", stdin=b"a\tA\n")
    assert code == 2
    assert "only one file can be read from standard input" in err


@pytest.mark.parametrize("test", ["randomisation", "bootstrap"])
def test_against_another(heedful_cli: Run, pairs: Path, tmp_path: Path, test: str) -> None:
    good, bad = lines(tmp_path / "good", spoiled(10)), lines(tmp_path / "bad", spoiled(2))
    code, out, _ = heedful_cli("evaluate", good, pairs, "--against", bad, "--test", test)
    assert code == 0
    assert f"\nagainst {bad}\n" in out
    assert re.search(r"^BLEU   better, p [<=] 0\.00\d$", out, re.MULTILINE)
    assert re.search(r"^difference +\+\d+\.\d +\+\d+\.\d +-\d+\.\d +\+\d+\.\d$", out, re.MULTILINE)
    record = json.loads(heedful_cli("evaluate", bad, pairs, "--against", good, "--test", test, "--json").out)
    other = record["against"]
    assert (other["model"], other["test"]) == (str(good), test)
    for name in ("bleu", "chrf", "ter", "exact"):
        one = other[name]
        assert one["verdict"] == "worse"
        assert one["p"] < 0.01
        assert one["first"] == record[name]
        assert one["difference"] == pytest.approx(one["first"] - one["second"])
        assert one["interval"][0] < one["difference"] < one["interval"][1]


def test_against_itself(heedful_cli: Run, model: Path, pairs: Path) -> None:
    out = heedful_cli("evaluate", model, pairs, "--against", model, "--device", "cpu").out
    assert out.count("no significant difference, p = 1.000") == 4


def test_what_is_wrong_is_said(heedful_cli: Run, model: Path, pairs: Path, tmp_path: Path) -> None:
    short = lines(tmp_path / "short", TARGETS[:-1])
    only_blank = lines(tmp_path / "blank.tsv", ["a\t", "", "\tB"])
    mistakes: list[tuple[list[object], str]] = [
        ([short, pairs], f"{short} has 39 lines but {pairs} has 40; translations need a line for each line"),
        ([model, pairs, "--against", short], f"{short} has 39 lines"),
        ([short, pairs, "--with", model], f"--with adds models to a model, but {short} is a file of translations"),
        ([model], "no test sentences: name files of PAIRS, or use --source and --reference"),
        ([model, pairs, "--source", pairs], "give either PAIRS or --source and --reference, not both"),
        ([model, "--source", pairs], "--source and --reference go together"),
        ([model, only_blank], f"{only_blank}: no line of 3 has both a source and a reference"),
        (
            [model, pairs, "--test", "bootstrp"],
            "unknown test 'bootstrp'; choose one of bootstrap, randomisation. Did you",
        ),
        ([model, lines(tmp_path / "empty.tsv", [])], "empty.tsv: empty, expected sentences with references"),
        ([model, pairs, "--against", model, "--test", "bootstrap", "--resamples", "0"], "'bootstrap' needs resamples"),
        ([model, pairs, "--save", tmp_path], "this is a folder; choose another name"),
        ([model, pairs, "--save", tmp_path / "no" / "o"], f"there is no folder {tmp_path / 'no'}"),
        ([tmp_path / "nowhere", pairs], "there is no such model folder"),
        ([model, pairs, "--columns", "1,3"], "expected 3 columns separated by a tab, found 2"),
        ([model, pairs, "--columns", "2"], "columns are '2'"),
    ]
    for arguments, message in mistakes:
        code, out, err = heedful_cli("evaluate", *arguments)
        assert (code, out) == (2, ""), arguments
        assert message in err


def test_progress_is_a_line_now_and_then(
    heedful_cli: Run, pairs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("heedful.cli.output.EVERY", 0.0)
    monkeypatch.setattr("heedful.metrics.sentence_stats.CHUNK", 15)
    file = lines(tmp_path / "o", TARGETS)
    assert heedful_cli("evaluate", file, pairs).err == f"scoring {file}: 15 of 40\nscoring {file}: 30 of 40\n"

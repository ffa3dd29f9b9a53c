"""`heedful train` and its like with pairs from anywhere: each format, stdin, several at once, and --strict."""

from __future__ import annotations

import csv
import gzip
import io
import json
from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import copies, write_pairs

Run = Callable[..., tuple[int, str, str]]
FAST = [
    *("--steps", "2", "--device", "cpu", "--threads", "1", "--preset", "none"),
    *("--set", "text.kind=word", "--set", "model.width=8", "--set", "model.embedding=4"),
]
PAIRS = copies(60)


def as_csv(pairs: list[tuple[str, str]], names: tuple[str, ...] = ("en", "hi")) -> bytes:
    text = io.StringIO(newline="")
    writer = csv.writer(text)
    writer.writerow(names)
    writer.writerows(pairs)
    return text.getvalue().encode()


def as_json(pairs: list[tuple[str, str]]) -> bytes:
    return "".join(json.dumps({"id": "7", "translation": {"en": x, "hi": y}}) + "\n" for x, y in pairs).encode()


def as_tsv(pairs: list[tuple[str, str]]) -> bytes:
    return "".join(f"{x}\t{y}\n" for x, y in pairs).encode()


def test_any_format_gives_the_same_model(heedful_cli: Run, tmp_path: Path) -> None:
    files = {
        "p.tsv": as_tsv(PAIRS),
        "p.csv": as_csv(PAIRS),
        "p.jsonl.gz": gzip.compress(as_json(PAIRS)),
        "x.txt": "".join(f"{x}\n" for x, _ in PAIRS).encode(),
        "y.txt.gz": gzip.compress("".join(f"{y}\n" for _, y in PAIRS).encode()),
        "a.csv": as_csv([(y, x) for x, y in PAIRS[:20]], ("hi", "en")),
        "b.ndjson": as_json(PAIRS[20:]),
        "dirty.tsv": as_tsv([(f" {x}\u200f", y.replace(" ", "\u00a0") + "\r") for x, y in PAIRS]) + b"\n\tx\n",
    }
    for name, content in files.items():
        (tmp_path / name).write_bytes(content)
    ways: list[tuple[list[object], bytes]] = [
        ([tmp_path / "p.tsv"], b""),
        ([tmp_path / "p.csv"], b""),
        ([tmp_path / "p.jsonl.gz"], b""),
        (["--source", tmp_path / "x.txt", "--target", tmp_path / "y.txt.gz"], b""),
        ([tmp_path / "a.csv", tmp_path / "b.ndjson", "--columns", "en,hi"], b""),
        ([tmp_path / "dirty.tsv"], b""),
        (["-"], as_tsv(PAIRS)),
        (["-", "--format", "jsonl", "--columns", "en,hi"], gzip.compress(as_json(PAIRS))),
    ]
    found = []
    for number, (way, stdin) in enumerate(ways):
        out = tmp_path / f"m{number}"
        code, _, err = heedful_cli("train", *way, "--out", out, *FAST, stdin=stdin)
        assert code == 0, err
        found.append((out / "model.safetensors").read_bytes())
    assert len(set(found)) == 1


def test_what_is_cleaned_is_said(heedful_cli: Run, tmp_path: Path) -> None:
    path = tmp_path / "p.tsv"
    path.write_bytes(as_tsv([*PAIRS, ("a\u00a0b", "A B"), ("c", "")]))
    code, _, err = heedful_cli("train", path, "--out", tmp_path / "m", *FAST)
    assert code == 0
    lines = err.splitlines()
    assert "cleaned 1 pair: replaced tabs, no-break and other spaces by plain spaces" in lines
    assert "  p.tsv:61: 'a\\xa0b'" in lines
    assert "dropped 1 pair: an empty side" in lines
    assert "  p.tsv:62: 'c' → ''" in lines


def test_strict(heedful_cli: Run, tmp_path: Path) -> None:
    clean = sorted(set(PAIRS))  # each once
    path = write_pairs(tmp_path / "p.tsv", clean)
    options = ["--out", tmp_path / "m", *FAST, "--strict"]
    dirty = tmp_path / "dirty.tsv"
    dirty.write_bytes(as_tsv(clean).replace(b"\n", b"\r\n"))
    code, _, err = heedful_cli("train", dirty, *options)
    assert code == 2
    assert "the sentence pairs are not clean (strict):" in err
    assert f"cleaned {len(clean)} pairs: removed a carriage return at the end" in err
    assert heedful_cli("train", path, "--valid", dirty, *options)[0] == 2
    assert heedful_cli("train", write_pairs(tmp_path / "twice.tsv", clean * 2), *options)[0] == 2
    assert not (tmp_path / "m").exists()
    code, _, err = heedful_cli("train", path, *options)
    assert code == 0, err


@pytest.mark.parametrize("kind", ["csv", "jsonl", "parallel", "by option"])
def test_validation_pairs_in_any_format(heedful_cli: Run, tmp_path: Path, kind: str) -> None:
    valid = [(f"{x} a", f"{y} A") for x, y in PAIRS[:7]]
    (tmp_path / "v.csv").write_bytes(as_csv(valid))
    (tmp_path / "v.jsonl").write_bytes(as_json(valid))
    (tmp_path / "v.data").write_bytes(as_csv(valid))
    (tmp_path / "p.data").write_bytes(as_csv(PAIRS))
    (tmp_path / "x").write_text("".join(f"{x}\n" for x, _ in valid))
    (tmp_path / "y").write_text("".join(f"{y}\n" for _, y in valid))
    ways: dict[str, list[object]] = {
        "csv": ["--valid", tmp_path / "v.csv"],
        "jsonl": ["--valid", tmp_path / "v.jsonl"],
        "parallel": ["--valid-source", tmp_path / "x", "--valid-target", tmp_path / "y"],
        "by option": ["--valid", tmp_path / "v.data"],
    }
    code, _, err = heedful_cli(
        "train", tmp_path / "p.data", "--format", "csv", *ways[kind], "--out", tmp_path / "m", *FAST
    )
    assert code == 0, err
    assert "pairs for training, 7 for validation" in err


def test_a_run_from_stdin_is_resumed_from_stdin(heedful_cli: Run, tmp_path: Path) -> None:
    options = ["--out", tmp_path / "m", *FAST]
    assert heedful_cli("train", "-", "--format", "csv", *options, stdin=as_csv(PAIRS))[0] == 0
    again = ["train", "--out", tmp_path / "m", "--resume", "--steps", "3"]
    code, _, err = heedful_cli(*again, stdin=as_csv(PAIRS[1:]))
    assert code == 2
    assert "are not those that the run" in err
    code, _, err = heedful_cli(*again, stdin=as_csv(PAIRS))
    assert code == 0, err
    assert "resuming from step 2" in err


def test_score_reads_any_format(heedful_cli: Run, tiny: Path, tmp_path: Path) -> None:
    pairs = [*PAIRS[:3], ("", ""), PAIRS[3]]
    (tmp_path / "p.csv").write_bytes(as_csv(pairs))
    expected = heedful_cli("score", tiny, write_pairs(tmp_path / "p.tsv", pairs))
    assert expected[0] == 0
    assert [bool(line) for line in expected[1].splitlines()] == [True, True, True, False, True]
    assert heedful_cli("score", tiny, tmp_path / "p.csv") == expected
    assert heedful_cli("score", tiny, "-", "--format", "jsonl", stdin=as_json(pairs)) == expected


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["p.csv", "--columns", "en,hin"], "p.csv, line 1: there is no column 'hin', only en, hi. Did you mean 'hi'?"),
        (["p.csv", "--columns", "1,2,3"], "columns are '1,2,3', expected two numbers from 1, or two names"),
        (["p.csv", "--format", "cvs"], "unknown format 'cvs'; choose one of csv, jsonl, tsv. Did you mean 'csv'?"),
        (["-", "-"], "standard input (-) can be read only once"),
        (["-", "--valid", "-"], "standard input (-) can be read only once"),
        (["p.csv", "--source", "x"], "give either PAIRS or --source and --target, not both"),
        (["--source", "x"], "--source and --target go together; only one of them was given"),
        (["--source", "x", "--target", "y", "--format", "csv"], "--columns and --format apply to PAIRS"),
        (["p.csv", "--valid", "x", "--valid-source", "y"], "give either --valid or --valid-source and --valid-target"),
        (["p.csv", "--valid-target", "y"], "--valid-source and --valid-target go together"),
        (["--resume", "--format", "csv"], "a run resumed without PAIRS keeps its own"),
        (["empty.jsonl"], "empty.jsonl: empty, expected sentence pairs"),
        ([], "no sentence pairs: name files of PAIRS, or use --source and --target"),
    ],
)
def test_options_that_cannot_be(
    heedful_cli: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: list[str], message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "p.csv").write_bytes(as_csv(PAIRS))
    (tmp_path / "empty.jsonl").write_bytes(b"")
    if "--resume" in options:
        assert heedful_cli("train", "p.csv", "--out", "m", *FAST)[0] == 0
    code, out, err = heedful_cli("train", *options, "--out", "m", *FAST)
    assert (code, out) == (2, "")
    assert message in err
    assert "--resume" in options or not (tmp_path / "m").exists()


@pytest.mark.parametrize(
    "options",
    [
        ["--valid", "nope.tsv"],
        ["--valid-source", "p.tsv", "--valid-target", "nope.tsv"],
        ["--links", "nope.tsv"],
        ["--links", "p.links", "--valid", "p.tsv", "--valid-links", "nope.tsv"],
        ["--valid", "nope.tsv", "--dry-run"],
    ],
)
def test_a_missing_file_is_noticed_before_pairs_are_read(
    heedful_cli: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: list[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    write_pairs(tmp_path / "p.tsv", [*PAIRS, ("", "dropped, and said if it were read")])
    (tmp_path / "p.links").write_text("\n" * (len(PAIRS) + 1))
    code, out, err = heedful_cli("train", "p.tsv", "--out", "m", *FAST, *options)
    assert (code, out, err) == (2, "", "heedful: nope.tsv: there is no such file\n")
    assert not (tmp_path / "m").exists()


def test_a_folder_for_validation_is_noticed_too(heedful_cli: Run, tmp_path: Path) -> None:
    path = write_pairs(tmp_path / "p.tsv", PAIRS)
    code, _, err = heedful_cli("train", path, "--out", tmp_path / "m", *FAST, "--valid", tmp_path)
    assert (code, err) == (2, f"heedful: {tmp_path}: this is a folder, expected a file of sentences\n")


@pytest.mark.parametrize("columns", ["2,2", "en,en"])
def test_the_same_column_twice(heedful_cli: Run, tmp_path: Path, columns: str) -> None:
    path = write_pairs(tmp_path / "p.tsv", PAIRS)
    code, _, err = heedful_cli("train", path, "--out", tmp_path / "m", "--columns", columns)
    assert (code, f"'{columns}'" in err and "twice" in err) == (2, True)


def test_nothing_to_go_on_with(heedful_cli: Run, tmp_path: Path) -> None:
    code, _, err = heedful_cli("train", "--out", tmp_path / "m", "--resume")
    assert (code, "has no run to resume" in err) == (2, True)
    code, _, err = heedful_cli("train", "--out", tmp_path / "m", "--resume", "--preset", "small")
    assert (code, "--preset is for a new run" in err) == (2, True)

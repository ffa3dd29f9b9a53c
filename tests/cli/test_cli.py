"""The commands as a person types them: results on stdout, messages on stderr, exit codes, no tracebacks."""

from __future__ import annotations

import gzip
import json
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import ROOT, copies, write_pairs

import heedful

Run = Callable[..., tuple[int, str, str]]
FAST = [
    *("--steps", "4", "--device", "cpu", "--threads", "1"),
    *("--set", "text.kind=word", "--set", "model.width=8", "--set", "model.embedding=4"),
]


@pytest.fixture
def pairs(tmp_path: Path) -> Path:
    return write_pairs(tmp_path / "pairs.tsv", copies(60))


# ---- what a user does


def test_version_and_help(heedful_cli: Run) -> None:
    assert heedful_cli("--version")[:2] == (0, f"heedful {heedful.__version__}\n")
    code, out, _ = heedful_cli("--help")
    assert code == 0
    assert all(verb in out for verb in ("train", "translate", "evaluate", "info"))


def test_train_translate_evaluate_info(heedful_cli: Run, pairs: Path, tmp_path: Path) -> None:
    code, out, err = heedful_cli("train", pairs, "--out", tmp_path / "m", *FAST)
    assert (code, out) == (0, "")
    assert "pairs for training" in err
    assert "all steps done, after step 4" in err
    assert (tmp_path / "m" / "model.safetensors").exists()
    code, out, _ = heedful_cli("translate", tmp_path / "m", "a b", "c")
    assert (code, len(out.splitlines())) == (0, 2)
    code, out, _ = heedful_cli("evaluate", tmp_path / "m", pairs)
    assert code == 0
    assert "nrefs:1|case:mixed" in out
    assert out.splitlines()[0].split() == ["source", "words", "pairs", "BLEU", "chrF", "TER", "exact", "%"]
    code, out, _ = heedful_cli("info", tmp_path / "m")
    assert code == 0
    assert 'family = "rnn"' in out
    assert "model.safetensors" in out


@pytest.mark.parametrize(
    "options",
    [
        ["--model", "fixed", "--cell", "lstm"],
        ["--model", "rnn", "--cell", "rnn", "--score", "dot", "--order", "luong"],
        ["--score", "concat", "--order", "bahdanau", "--seed", "3"],
        ["--score", "scaled", "--set", "model.layers=2", "--set", "model.tied=true", "--set", "model.bridge=copy"],
        ["--score", "general", "--set", "text.kind=bpe", "--set", "text.size=40"],
        ["--set", "text.kind=char", "--set", "model.bidirectional=false"],
    ],
)
def test_every_kind_of_model_can_be_trained(heedful_cli: Run, pairs: Path, tmp_path: Path, options: list[str]) -> None:
    done = heedful_cli("train", pairs, "--out", tmp_path / "m", *FAST, *options)
    assert done.code == 0
    shown = "" if "fixed" in options else " --show"  # where a model without attention looks is nowhere
    assert done.err.endswith(f'try: heedful translate {tmp_path / "m"} "…"{shown}\n')
    record = json.loads(heedful_cli("info", tmp_path / "m", "--json").out)
    for flag, value in zip(options[::2], options[1::2], strict=True):
        if flag in ("--cell", "--score", "--order"):
            assert record["config"]["model"][flag[2:]] == value
    assert heedful_cli("translate", tmp_path / "m", "a b").code == 0


def test_stdin_to_stdout_line_by_line(heedful_cli: Run, tiny: Path) -> None:
    done = heedful_cli("translate", tiny, stdin=b"a b\n\nc\r\n   \nd e")
    lines = done.out.split("\n")
    assert len(lines) == 6
    assert lines[5] == ""
    assert (lines[1], lines[3]) == ("", "")
    assert all(lines[i] for i in (0, 2, 4))
    alone = [heedful_cli("translate", tiny, text).out.strip() for text in ("a b", "c", "d e")]
    assert [lines[0], lines[2], lines[4]] == alone


def test_empty_stdin_gives_nothing(heedful_cli: Run, tiny: Path) -> None:
    assert heedful_cli("translate", tiny) == (0, "", "")


def test_show_draws_the_map(heedful_cli: Run, tiny: Path) -> None:
    out = heedful_cli("translate", tiny, "a b c", "--show").out
    assert "source: 1 a  2 b  3 c  4 </s>" in out
    assert "weight from:" in out
    assert max(map(len, out.splitlines())) <= 80
    plain = heedful_cli("translate", tiny, "a b c", "--show", "--ascii").out
    assert plain.isascii()


def test_json_everywhere(heedful_cli: Run, tiny: Path, pairs: Path, tmp_path: Path) -> None:
    lines = heedful_cli("translate", tiny, "a b", "", "--json").out.splitlines()
    first, blank = map(json.loads, lines)
    assert first.keys() == {"source", "text", "score", "confidence"}
    assert blank["text"] == ""
    shown = json.loads(heedful_cli("translate", tiny, "a b", "--json", "--show").out)
    assert [w[0] for w in shown["source_words"]] == ["a", "b", "</s>"]
    assert len(shown["weights"]) == len(shown["target_words"])
    scores = json.loads(heedful_cli("evaluate", tiny, pairs, "--json").out)
    assert scores["pairs"] == 60 == sum(row["pairs"] for row in scores["by_length"])
    assert json.loads(heedful_cli("info", tiny, "--json").out)["format"] == 1
    done = heedful_cli("train", pairs, "--out", tmp_path / "m", *FAST, "--json")
    assert json.loads(done.out)["step"] == 4


def test_parallel_files_columns_and_gzip(heedful_cli: Run, tmp_path: Path) -> None:
    rows = copies(60)
    (tmp_path / "x.txt").write_text("".join(f"{x}\n" for x, _ in rows))
    with gzip.open(tmp_path / "y.txt.gz", "wt") as file:
        file.write("".join(f"{y}\n" for _, y in rows))
    with gzip.open(tmp_path / "yx.tsv.gz", "wt") as file:
        file.write("".join(f"{y}\tid\t{x}\n" for x, y in rows))
    parallel = ["--source", tmp_path / "x.txt", "--target", tmp_path / "y.txt.gz"]
    assert heedful_cli("train", *parallel, "--out", tmp_path / "a", *FAST).code == 0
    assert heedful_cli("train", tmp_path / "yx.tsv.gz", "--columns", "3,1", "--out", tmp_path / "b", *FAST).code == 0
    weights = [(tmp_path / name / "model.safetensors").read_bytes() for name in "ab"]
    assert weights[0] == weights[1]
    assert heedful_cli("evaluate", tmp_path / "a", *parallel).code == 0


def test_resume_needs_no_pairs_again(heedful_cli: Run, pairs: Path, tmp_path: Path) -> None:
    out = tmp_path / "m"
    assert heedful_cli("train", pairs, "--out", out, *FAST).code == 0
    done = heedful_cli("train", "--out", out, "--resume", "--steps", "6")
    assert done.code == 0
    assert "resuming from step 4" in done.err
    straight = tmp_path / "straight"
    heedful_cli("train", pairs, "--out", straight, *FAST, "--steps", "6")
    assert (straight / "model.safetensors").read_bytes() == (out / "model.safetensors").read_bytes()


def test_a_recipe_gives_way_to_options(heedful_cli: Run, pairs: Path, tmp_path: Path) -> None:
    recipe = tmp_path / "r.toml"
    recipe.write_text('[model]\nwidth = 6\ncell = "lstm"\n[training]\nsteps = 2\n')
    done = heedful_cli(
        "train", pairs, "--out", tmp_path / "m", "--recipe", recipe, "--cell", "rnn", "--set", "model.embedding=4"
    )
    assert done.err.startswith(f"settings of {recipe}\n")
    assert "no preset: all other settings have their defaults\n" in done.err
    assert "preset '" not in done.err
    model = json.loads(heedful_cli("info", tmp_path / "m", "--json").out)["config"]["model"]
    assert (model["width"], model["cell"], model["embedding"]) == (6, "rnn", 4)


# ---- bad input: one clear message, exit code 2, nothing half-written

BAD_FILES = {
    "missing": (None, "there is no such file"),
    "empty": (b"", "pairs.tsv: empty, expected sentence pairs"),
    "blank": (b"\n  \n\t\n", "only blank lines (3)"),
    "columns": (b"a\tb\nc d\n", "line 2: expected 2 columns separated by a tab, as in line 1, found 1: 'c d'"),
    "one": ("मैं घर जाता हूँ\n".encode(), "line 1: expected 2 columns separated by a tab, found 1: 'मैं घर जाता हूँ'"),
    "utf8": (b"a\tb\nc\xff\td\n", "line 2: byte 2 is 0xff, which is not UTF-8"),
    "half": (b"a\t\nb\t \n", "no pair has both a source and a target (2 have one empty side)"),
    "single": (b"a\tb\na\tb\n", "too few different sentences to hold some out"),
    "gzip": (gzip.compress(b"a\tb\n" * 99)[:-6], "this gzip file is broken or cut short"),
}


@pytest.mark.parametrize("case", BAD_FILES)
def test_bad_pairs(heedful_cli: Run, tmp_path: Path, case: str) -> None:
    content, message = BAD_FILES[case]
    path = tmp_path / "pairs.tsv"
    if content is not None:
        path.write_bytes(content)
    code, out, err = heedful_cli("train", path, "--out", tmp_path / "m", *FAST)
    assert (code, out) == (2, "")
    assert message in err
    if case != "single":  # whose pairs were read, and said
        assert str(path) in err
        assert err.count("\n") == 1
    assert not (tmp_path / "m").exists()


def test_parallel_files_of_unequal_length(heedful_cli: Run, tmp_path: Path) -> None:
    (tmp_path / "x").write_text("a\nb\nc\n")
    (tmp_path / "y").write_text("a\nb\nc\nd\ne\n")
    code, _, err = heedful_cli("train", "--source", tmp_path / "x", "--target", tmp_path / "y", "--out", tmp_path / "m")
    assert code == 2
    assert f"{tmp_path}/x has 3 lines but {tmp_path}/y has 5" in err


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--score", "addative"], "unknown model.score 'addative'; choose one of additive, concat, "),
        (["--score", "addative"], "Did you mean 'additive'?"),
        (["--cell", "grru"], "Did you mean 'gru'?"),
        (["--model", "rn"], "unknown model 'rn'; choose one of fixed, rnn, transformer. Did you mean 'rnn'?"),
        (["--order", "x"], "choose one of bahdanau, luong"),
        (["--device", "gpu"], "choose one of auto, cpu, cuda, mps"),
        (["--precision", "fp16"], "unknown training.precision 'fp16'"),
        (["--steps", "many"], "training.steps is 'many', expected a whole number from 1"),
        (["--steps", "0"], "expected a whole number from 1"),
        (["--threads", "-1"], "training.threads is '-1', expected a whole number from 0"),
        (["--set", "training.checkpoint_evry=3"], "Did you mean 'checkpoint_every'?"),
        (["--set", "trainin.steps=3"], "unknown section 'trainin'"),
        (["--set", "steps"], "expected section.key=value"),
        (["--columns", "1"], "columns are '1', expected two numbers"),
        (["--model", "fixed", "--score", "dot"], "unknown setting 'model.score' of the model 'fixed'"),
        (["--model", "fixed", "--score", "dot"], "Models that have score: rnn."),
        (["--score", "dot", "--set", "model.encoder_width=5"], "their widths are 8 and 10"),
        (["--set", "model.width=7"], "two directions cannot share"),
        (["--set", "model.bridge=copy", "--set", "model.encoder_width=5"], "bridge=copy needs an encoder as wide"),
        (["--source", "x"], "give either PAIRS or --source and --target, not both"),
        (["--recipe", "nowhere.toml"], "heedful: nowhere.toml: there is no such file\n"),
    ],
)  # fmt: skip
def test_bad_options(heedful_cli: Run, pairs: Path, tmp_path: Path, options: list[str], message: str) -> None:
    code, out, err = heedful_cli("train", pairs, "--out", tmp_path / "m", *FAST, *options)
    assert (code, out) == (2, "")
    assert message in err
    assert not (tmp_path / "m").exists()


def test_paths_that_cannot_be(heedful_cli: Run, pairs: Path, tmp_path: Path) -> None:
    for args in (["info", "x" * 300], ["train", pairs, "--out", tmp_path / ("x" * 300), *FAST]):
        code, out, err = heedful_cli(*args)
        assert (code, out) == (2, "")
        assert "File name too long" in err
        assert err.count("\n") == 1


def test_no_pairs_at_all(heedful_cli: Run, tmp_path: Path) -> None:
    code, _, err = heedful_cli("train", "--out", tmp_path / "m")
    assert code == 2
    assert "no sentence pairs" in err
    code, _, err = heedful_cli("train", "--out", tmp_path / "m", "--resume")
    assert code == 2
    assert "has no run to resume" in err


def test_an_unknown_verb_gets_a_guess(heedful_cli: Run) -> None:
    code, _, err = heedful_cli("translat")
    assert code == 2
    assert "translate" in err


def test_an_out_folder_with_a_model(heedful_cli: Run, pairs: Path, tiny: Path) -> None:
    code, _, err = heedful_cli("train", pairs, "--out", tiny, *FAST)
    assert code == 2
    assert "already has a model" in err
    assert "--resume" in err


def test_an_out_folder_with_a_model_and_nothing_to_resume(
    heedful_cli: Run, pairs: Path, tiny: Path, tmp_path: Path
) -> None:
    alone = tmp_path / "m"
    shutil.copytree(tiny, alone, ignore=shutil.ignore_patterns("checkpoints"))
    before = {path: path.read_bytes() for path in alone.iterdir()}
    code, _, err = heedful_cli("train", pairs, "--out", alone, *FAST)
    assert (code, err.startswith(f"heedful: {alone}: this folder already has a model, and no checkpoint")) == (2, True)
    assert f"--init {alone}" in err
    code, _, err = heedful_cli("train", "--out", alone, "--resume")
    assert (code, err.startswith(f"heedful: {alone} has no run to resume, only a model; ")) == (2, True)
    assert {path: path.read_bytes() for path in alone.iterdir()} == before
    assert heedful_cli("train", pairs, "--out", tmp_path / "other", "--init", alone, "--steps", 1).code == 0


def test_info_without_a_model_says_which_way_is_taken(heedful_cli: Run) -> None:
    code, out, _ = heedful_cli("info")
    record = json.loads(heedful_cli("info", "--json").out)
    assert code == 0
    assert {way["operation"] for way in record["paths"]} >= {"token_losses", "scaled_attend"}
    for way in record["paths"]:
        assert f"{way['way']:9}  {way['why']}" in out
    assert f"PyTorch {record['torch']}" in out


@pytest.mark.parametrize("verb", ["translate", "evaluate", "info"])
def test_not_a_model(heedful_cli: Run, pairs: Path, tmp_path: Path, verb: str) -> None:
    arguments = {"translate": ["a"], "evaluate": [pairs], "info": []}[verb]
    code, out, err = heedful_cli(verb, tmp_path, *arguments)
    assert (code, out) == (2, "")
    assert f"{tmp_path}: this folder has no model" in err


def test_stdin_that_is_not_utf8(heedful_cli: Run, tiny: Path) -> None:
    code, out, err = heedful_cli("translate", tiny, stdin=b"a b\n\xff\n")
    assert (code, out.count("\n")) == (2, 1)  # the line before it
    assert "standard input, line 2: byte 1 is 0xff, which is not UTF-8" in err


def test_a_full_disk_exits_with_1(
    heedful_cli: Run, pairs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(self: Path, *args: object, **more: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "mkdir", full)
    code, _, err = heedful_cli("train", pairs, "--out", tmp_path / "m", *FAST)
    assert code == 1
    assert "cannot be written (No space left on device)" in err


# ---- what only a process can show


def heedful_process(*args: object, **more: object) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-m", "heedful", *map(str, args)], cwd=ROOT, **more)  # type: ignore[call-overload,no-any-return]


def test_a_reader_that_goes_away_is_no_error(tiny: Path) -> None:
    command = f"yes 'a b' | head -3000 | {sys.executable} -m heedful translate {tiny} | head -1"
    done = subprocess.run(["bash", "-c", command], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.count("\n") == 1
    assert done.stderr == ""


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_results_that_cannot_be_written(tiny: Path) -> None:
    with open("/dev/full", "wb") as full:
        process = heedful_process("translate", tiny, "a b", stdout=full, stderr=subprocess.PIPE)
        _, err = process.communicate()
    assert process.returncode == 1
    assert err.decode() == "heedful: the output cannot be written (No space left on device)\n"


def test_ctrl_c_finishes_the_checkpoint_and_says_how_to_resume(pairs: Path, tmp_path: Path) -> None:
    out = tmp_path / "m"
    rare = ("--set", "training.valid_every=1000000", "--set", "training.checkpoint_every=1000000")
    options = [*FAST, "--steps", "1000000", "--set", "training.log_every=1", *rare]
    process = heedful_process("train", pairs, "--out", out, *options, stderr=subprocess.PIPE)
    deadline = time.monotonic() + 300
    while not (out / "metrics.jsonl").exists() or (out / "metrics.jsonl").stat().st_size < 500:
        assert process.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.05)
    process.send_signal(2)
    _, err = process.communicate(timeout=300)
    assert process.returncode == 130
    assert f"to continue: heedful train --out {out} --resume" in err.decode()
    assert "Traceback" not in err.decode()
    assert heedful.load(out, "cpu").translate("a").source == "a"
    assert len(list((out / "checkpoints").glob("0*"))) == 1


def test_unknown_words_are_said_on_stderr_once(heedful_cli: Run, tiny: Path) -> None:
    code, out, err = heedful_cli("translate", tiny, "a ज b", "ज a")
    assert (code, len(out.splitlines())) == (0, 2)
    assert err == "1 unknown word, read as <unk>: ज\n"
    assert heedful_cli("translate", tiny, "a b").err == ""


def test_unknown_words_are_named_whole(heedful_cli: Run, tiny: Path) -> None:
    family, tone = "👨\u200d👩\u200d👧", "👍🏽"
    err = heedful_cli("translate", tiny, f"a {family} b {tone} हूँ {family}").err
    assert err == f"3 unknown words, read as <unk>: {family}, {tone}, हूँ\n"

"""Options that would change nothing are refused, all in the same words."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

Run = Callable[..., tuple[int, str, str]]
TRANSLATE = [
    (("--seed", "7"), "--seed has no effect without --sample"),
    (("--temperature", "0.5"), "--temperature has no effect without --sample"),
    (("--top-k", "5", "--beam", "2"), "--top-k has no effect without --sample"),
    (("--top-p", "0.5"), "--top-p has no effect without --sample"),
    (("--penalty", "gnmt"), "--penalty has no effect without --beam"),
    (("--alpha", "0.6", "--sample"), "--alpha has no effect without --beam"),
    (("--beam", "2", "--penalty", "none", "--alpha", "0.6"), "--alpha has no effect with --penalty none"),
    (("--ascii",), "--ascii has no effect without --show"),
    (("--ascii", "--show", "--json"), "--ascii has no effect with --json"),
    (
        ("--stream", "--batch-tokens", "9"),
        "--batch-tokens has no effect with --stream, which decodes one sentence at a time",
    ),
]
PARALLEL = "with --source and --reference, which have one sentence a line"
EVALUATE = [
    *(
        (options, f"{options[0]} has no effect where answers.txt is a file of translations")
        for options in (
            ("--beam", "4"),
            ("--min-length", "1"),
            ("--max-length", "9"),
            ("--no-repeat", "2"),
            ("--copy-unknown",),
            ("--device", "cpu"),
            ("--threads", "1"),
            ("--batch-tokens", "99"),
        )
    ),
    (("--test", "bootstrap"), "--test has no effect without --against"),
    (("--seed", "3", "--resamples", "0"), "--seed has no effect with --resamples 0"),
    (("--alpha", "0.5"), "--alpha has no effect without --beam"),
    (
        ("--columns", "2,1", "--source", "answers.txt", "--reference", "answers.txt"),
        f"--columns has no effect {PARALLEL}",
    ),
    (
        ("--format", "tsv", "--source", "answers.txt", "--reference", "answers.txt"),
        f"--format has no effect {PARALLEL}",
    ),
]


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("answers.txt").write_text("A\nB\n")
    Path("test.tsv").write_text("a\tA\nb\tB\n")


@pytest.mark.parametrize(("options", "words"), TRANSLATE, ids=lambda value: " ".join(value))
def test_translate(heedful_cli: Run, options: tuple[str, ...], words: str) -> None:
    """Before the model is opened: there is none."""
    assert heedful_cli("translate", "no-model", "a", *options) == (2, "", f"heedful: {words}; leave it out\n")


@pytest.mark.parametrize(("options", "words"), EVALUATE, ids=lambda value: " ".join(value))
@pytest.mark.usefixtures("files")
def test_evaluate(heedful_cli: Run, options: tuple[str, ...], words: str) -> None:
    pairs = () if "--source" in options else ("test.tsv",)
    assert heedful_cli("evaluate", "answers.txt", *pairs, *options) == (2, "", f"heedful: {words}; leave it out\n")


@pytest.mark.usefixtures("files")
def test_what_has_an_effect_is_taken(heedful_cli: Run, tiny: Path) -> None:
    for options in (("--seed", "3"), ("--against", "answers.txt", "--test", "bootstrap", "--resamples", "9")):
        assert heedful_cli("evaluate", "answers.txt", "test.tsv", *options).code == 0  # type: ignore[attr-defined]
    # one of the two is a model
    code, _, err = heedful_cli(
        "evaluate", "answers.txt", "test.tsv", "--against", tiny, "--beam", "2", "--resamples", "9"
    )
    assert code == 0, err
    # what draws several is printed with what they are compared by
    code, _, err = heedful_cli("translate", tiny, "a", "--sample", "--n-best", "2", "--alpha", "0.5", "--seed", "3")
    assert code == 0, err


@pytest.mark.usefixtures("files")
def test_compare_and_corpus(heedful_cli: Run) -> None:
    words = "heedful: --beam has no effect where answers.txt and answers.txt are files of translations; leave it out\n"
    assert heedful_cli("compare", "answers.txt", "answers.txt", "test.tsv", "--beam", "3") == (2, "", words)
    for option in ("--alignments", "--antecedents"):
        words = f"heedful: {option} has no effect with --json, which always has it; leave it out\n"
        assert heedful_cli("corpus", "hindi", "--json", option) == (2, "", words)

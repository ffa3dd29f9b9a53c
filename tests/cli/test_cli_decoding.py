"""`heedful translate` with every way to write, `heedful evaluate` with a beam, and `heedful score`."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import ROOT, copies, write_pairs
from small_runs import small, train_tiny

import heedful
from heedful.cli.options import Notes, as_options

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture(scope="session")
def tiny_transformer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Transformer with the vocabularies of `tiny`."""
    out = tmp_path_factory.mktemp("tiny_transformer") / "model"
    model = {"family": "transformer", "layers": 2, "heads": 2, "width": 16, "inner": 16}
    heedful.train(copies(), out, settings={**small(training={"steps": 8}), "model": model})
    return out


# ---- what is printed


def test_n_best_lines_are_rank_score_text(heedful_cli: Run, tiny: Path) -> None:
    code, out, err = heedful_cli("translate", tiny, "a b c", "", "d", "--beam", "4", "--n-best", "3", "--alpha", "0.5")
    assert (code, err) == (0, "")
    lines = out.split("\n")
    assert (lines[3], lines[7], len(lines)) == ("", "", 8)
    rows = [line.split("\t") for line in lines[:3]]
    assert [row[0] for row in rows] == ["1", "2", "3"]
    scores = [float(row[1]) for row in rows]
    assert scores == sorted(scores, reverse=True)
    how = heedful.Decoding(beam=4, n_best=3, alpha=0.5)
    found = heedful.load(tiny, "cpu").translate("a b c", how)
    assert [row[2] for row in rows] == [one.text for one in found.n_best]
    assert scores == [pytest.approx(one.score / one.length**0.5, abs=1e-4) for one in found.n_best]


def test_html_that_is_not_translated_is_not_changed(heedful_cli: Run, tiny: Path) -> None:
    tag = '<p title="<img src=x onerror=alert(1)>">'
    code, out, err = heedful_cli("translate", tiny, f"{tag}a <b>b</b></p>", "--html")
    assert (code, err) == (0, "")
    assert out.startswith(tag)
    assert "<img" not in out.removeprefix(tag)
    # A line break ends a comment in a script; it is kept, whether the text has any or not.
    script = "<script>// x\u2028\t\nf()\n</script>"
    code, out, _ = heedful_cli("translate", tiny, f"a{script}", "--html")
    assert (code, out.endswith(f"{script}\n")) == (0, True)
    code, _, err = heedful_cli("translate", tiny, f"a{script}", "--html", "--alignments")
    assert (code, "--json" in err) == (2, True)
    # Lines of standard input are texts of their own: what runs on over several is said.
    code, out, err = heedful_cli("translate", tiny, "--html", stdin=b"a <script>\nf()\n<b title='\n")
    assert (code, out.count("\n"), out.split("\n")[0].endswith("<script>")) == (0, 3, True)
    assert "line 1: markup, line 1, column 3: <script> that is not closed" in err
    assert "line 3: markup, line 1, column 1: a tag that is not closed: it is read as text (each line is" in err


def test_html_is_translated_block_by_block(heedful_cli: Run, tiny: Path) -> None:
    apart = [heedful_cli("translate", tiny, text).out.strip() for text in ("a b", "c d")]
    code, out, _ = heedful_cli("translate", tiny, "<p>a b</p> <br>c d {x}", "--html")
    assert (code, out) == (0, f"<p>{apart[0]}</p> <br>{apart[1]} {{x}}\n")
    code, out, _ = heedful_cli("translate", tiny, "<p>a b</p> <br>c d {x}", "--html", "--no-split")
    assert code == 0
    assert re.fullmatch(r"<p>[^<]*</p> <br>[^<]*\{x\}\n", out)
    assert re.sub(r"<[^>]*>|\{x\}|\s", "", out) == "".join(heedful_cli("translate", tiny, "a b c d").out.split())


def test_n_best_of_two_sentences_adds_their_scores(heedful_cli: Run, tiny: Path) -> None:
    both = heedful_cli("translate", tiny, "A b! C d!", "--beam", "3", "--n-best", "2").out.splitlines()
    each = [heedful_cli("translate", tiny, text, "--beam", "3", "--n-best", "2").out for text in ("A b!", "C d!")]
    alone = [[float(line.split("\t")[1]) for line in out.splitlines()] for out in each]
    assert [float(line.split("\t")[1]) for line in both] == [pytest.approx(sum(s), abs=2e-4) for s in zip(*alone)]  # noqa: B905


def test_n_best_as_json_and_shown(heedful_cli: Run, tiny: Path) -> None:
    lines = heedful_cli("translate", tiny, "a b", "", "--beam", "3", "--n-best", "3", "--json").out.splitlines()
    first, blank = map(json.loads, lines)
    assert first["n_best"][0]["text"] == first["text"]
    ranks = [one["rank_score"] for one in first["n_best"]]
    assert len(ranks) == 3
    assert ranks == sorted(ranks, reverse=True)
    assert blank["text"] == ""
    shown = heedful_cli("translate", tiny, "a b", "--beam", "3", "--n-best", "2", "--show").out
    assert shown.count("weight from:") == 2


def test_the_options_reach_the_decoder(heedful_cli: Run, tiny: Path) -> None:
    translator = heedful.load(tiny, "cpu")
    text = "a b c d a b c d"
    for options, how in (
        (["--beam", "5", "--penalty", "gnmt", "--alpha", "2"], {"beam": 5, "penalty": "gnmt", "alpha": 2.0}),
        (["--min-length", "12"], {"min_length": 12}),
        (["--max-length", "2"], {"max_length": 2}),
        (["--min-length", "12", "--no-repeat", "1"], {"min_length": 12, "no_repeat": 1}),
        (["--sample", "--seed", "3"], {"sample": True, "seed": 3}),
        (["--sample", "--temperature", "3"], {"sample": True, "temperature": 3.0}),
        (["--sample", "--temperature", "3", "--top-k", "2"], {"sample": True, "temperature": 3.0, "top_k": 2}),
        (["--sample", "--temperature", "3", "--top-p", "0.3"], {"sample": True, "temperature": 3.0, "top_p": 0.3}),
    ):
        wanted = translator.translate(text, heedful.Decoding(**how)).text  # type: ignore[arg-type]
        assert heedful_cli("translate", tiny, text, *options).out == f"{wanted}\n"
    assert heedful_cli("translate", tiny, text, "--prefix", "H G").out.startswith("H G ")


def test_line_breaks_and_spacing_of_a_terminal_stay(heedful_cli: Run, tiny: Path) -> None:
    parts = [heedful_cli("translate", tiny, text).out.strip() for text in ("A b!", "C d!")]
    assert heedful_cli("translate", tiny, "  A b!\n\nC d! \n").out == "\n\n".join(parts) + "\n"
    assert heedful_cli("translate", tiny, "A b!\x0b C d!").out == " ".join(parts) + "\n"
    assert heedful_cli("translate", tiny, "A b!   C d!").out == "   ".join(parts) + "\n"
    whole = heedful_cli("translate", tiny, "A b!  C d!", "--no-split").out
    assert whole == heedful.load(tiny, "cpu").translate("A b!  C d!", split=False).text + "\n"


def test_unknown_words_are_copied(heedful_cli: Run, tmp_path: Path) -> None:
    """A model that has only ever seen unknown words writes nothing else."""
    names = [(f"x{i} x{i + 1}", f"y{i} y{i + 1}") for i in range(300)]
    out = tmp_path / "m"
    settings = {"text": {"kind": "word", "size": 5}, "model": {"width": 8, "embedding": 4}}
    heedful.train(names, out, settings={**settings, "training": {"steps": 60, "rate": 0.05, "device": "cpu"}})
    plain = heedful_cli("translate", out, "p q")
    assert "<unk>" in plain.out
    assert "2 unknown words" in plain.err
    copied = heedful_cli("translate", out, "p q", "--copy-unknown")
    assert "<unk>" not in copied.out
    assert set(copied.out.split()) <= {"p", "q"}
    left = {"p", "q"} - set(copied.out.split())
    assert len(left) < 2
    assert (f"{len(left)} unknown word" in copied.err) is bool(left)


def test_an_ensemble(heedful_cli: Run, tiny: Path, tiny_transformer: Path) -> None:
    wanted = heedful.load([tiny, tiny_transformer], "cpu").translate("a b c", heedful.Decoding(beam=3))
    done = heedful_cli("translate", tiny, "a b c", "--with", tiny_transformer, "--beam", "3", "--json")
    assert json.loads(done.out)["score"] == pytest.approx(wanted.score, abs=1e-4)
    assert heedful_cli("translate", tiny, "a", "--with", ROOT / "nowhere").code == 2


# ---- notes


def test_notes_are_said_once_with_their_lines(heedful_cli: Run, tiny: Path) -> None:
    done = heedful_cli("translate", tiny, "--max-length", "1", stdin=b"a b c d e f\n" * 3)
    assert (
        done.err
        == "line 1: the translation was cut off after 1 token, as --max-length says; the same in 2 other lines\n"
    )
    assert heedful_cli("translate", tiny, "a b c", "--max-length", "1").err.startswith("the translation was cut off")


def test_notes_of_one_kind_are_one(capsys: pytest.CaptureFixture[str]) -> None:
    notes = Notes()
    for found in (["12 tokens, 2 parts", "14 tokens, 3 parts"], [], ["1,300 tokens, 9 parts"], ["other"]):
        notes.add(found)
    notes.log()
    assert capsys.readouterr().err == "line 1: 14 tokens, 3 parts; the same in 1 other line\nline 4: other\n"


def test_a_long_sentence_is_reported(heedful_cli: Run, tmp_path: Path) -> None:
    out = train_tiny(tmp_path / "m", text={"max_length": 6}, training={"steps": 8})
    for more in ([], ["--stream"]):
        done = heedful_cli("translate", out, "a b c d e f g h a b c", *more)
        assert done.code == 0
        assert "a sentence of 12 tokens is longer than this model reads at once (6, text.max_length)" in done.err


# ---- bad input


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--n-best", "3"], "--n-best is 3, but a --beam of 1 finds at most 1; widen the --beam, or --sample"),
        (["--beam", "0"], "--beam is 0, expected a whole number from 1 to 1000"),
        (["--beam", "many"], "'--beam'"),
        (["--beam", "2", "--sample"], "--sample and --beam exclude each other"),
        (["--temperature", "0.5"], "--temperature has no effect without --sample; leave it out"),
        (["--sample", "--top-p", "0"], "--top-p is 0.0, expected a number above 0 and at most 1"),
        (["--sample", "--top-p", "nan"], "--top-p is nan"),
        (["--sample", "--top-k", "-1"], "--top-k is -1, expected"),
        (["--min-length", "5", "--max-length", "3"], "--min-length is 5, which is more than --max-length, 3"),
        (["--beam", "2", "--penalty", "lenght"], "unknown --penalty 'lenght'; choose one of gnmt, length, none."),
        (["--prefix", "Z beam"], ": Z, beam"),
        (["--prefix", "A B", "--max-length", "1"], "the prefix 'A B' has 2 tokens, more than --max-length, 1"),
        (["--stream", "--beam", "2"], "--stream and --beam exclude each other"),
        (["--stream", "--n-best", "2"], "--stream and --n-best exclude each other"),
        (["--stream", "--copy-unknown"], "--stream and --copy-unknown exclude each other"),
    ],
)  # fmt: skip
def test_bad_ways_to_write(heedful_cli: Run, tiny: Path, options: list[str], message: str) -> None:
    code, out, err = heedful_cli("translate", tiny, "a b", *options)
    assert (code, out) == (2, "")
    assert message in err


def test_copying_needs_something_to_look_at(heedful_cli: Run, tmp_path: Path) -> None:
    out = train_tiny(tmp_path / "m", model={"family": "fixed"}, training={"steps": 2})
    code, _, err = heedful_cli("translate", out, "a", "--copy-unknown")
    assert code == 2
    assert "--copy-unknown needs a model with attention" in err


def test_messages_name_options_but_not_in_quotes_and_not_of_models() -> None:
    assert as_options("'top_k' (8, text.max_length); max_length of beam_x") == (
        "'top_k' (8, text.max_length); --max-length of beam_x"
    )


# ---- evaluate and score


def test_evaluate_with_a_beam_takes_each_line_as_one_sentence(heedful_cli: Run, tiny: Path, tmp_path: Path) -> None:
    translator = heedful.load(tiny, "cpu")
    how = heedful.Decoding(beam=3, max_length=4)
    sources = ["a b! C d! E f!", "g h a b"]
    targets = [one.text for one in translator.translate(sources, how, split=False)]
    assert targets != [one.text for one in translator.translate(sources, how)]
    pairs = write_pairs(tmp_path / "p.tsv", list(zip(sources, targets, strict=True)))
    done = heedful_cli("evaluate", tiny, pairs, "--json", "--beam", "3", "--max-length", "4")
    assert json.loads(done.out)["exact"] == 100.0
    assert json.loads(heedful_cli("evaluate", tiny, pairs, "--json").out)["exact"] < 100
    code, _, err = heedful_cli("evaluate", tiny, pairs, "--beam", "0")
    assert code == 2
    assert "--beam is 0" in err


def test_score_has_a_line_for_each_pair(heedful_cli: Run, tiny: Path, tmp_path: Path) -> None:
    pairs = tmp_path / "p.tsv"
    pairs.write_text("a b\tA B\n\nc\t\nd e\tD D D\n")
    code, out, err = heedful_cli("score", tiny, pairs)
    assert (code, err) == (0, "2 lines with an empty side have no score\n")
    lines = out.split("\n")
    assert (len(lines), lines[1], lines[2], lines[4]) == (5, "", "", "")
    (wanted,) = heedful.load(tiny, "cpu").score(["a b"], ["A B"])
    score, confidence = map(float, lines[0].split("\t"))
    assert score == pytest.approx(wanted.score, abs=1e-4)
    assert confidence == pytest.approx(math.exp(wanted.score / 3), abs=1e-4)
    records = [json.loads(line) for line in heedful_cli("score", tiny, pairs, "--json").out.splitlines()]
    assert [r["score"] is None for r in records] == [False, True, True, False]
    assert [w[0] for w in records[0]["target_words"]] == ["A", "B", "</s>"]
    assert len(records[0]["word_confidences"]) == 3


def test_score_of_parallel_files_is_that_of_tsv(heedful_cli: Run, tiny: Path, tmp_path: Path) -> None:
    rows = copies(20)
    (tmp_path / "x").write_text("".join(f"{x}\n" for x, _ in rows))
    (tmp_path / "y").write_text("".join(f"{y}\n" for _, y in rows))
    tsv = heedful_cli("score", tiny, write_pairs(tmp_path / "p.tsv", rows)).out
    assert heedful_cli("score", tiny, "--source", tmp_path / "x", "--target", tmp_path / "y").out == tsv
    assert tsv.count("\n") == 20
    code, out, err = heedful_cli("score", tiny)
    assert (code, out) == (2, "")
    assert "no sentence pairs" in err

"""`heedful align --model`: a line for each pair, as the model aligns it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from random_translators import random_folder, random_parts

import heedful
from heedful.folder import Parts, write_model
from heedful.models import build
from heedful.text import Codec

PAIRS = [("a b c", "A C B"), ("", "B"), ("bead cafe", "FACE D"), ("d", "")]


@pytest.fixture
def pairs(tmp_path: Path) -> Path:
    path = tmp_path / "pairs.tsv"
    path.write_text("".join(f"{x}\t{y}\n" for x, y in PAIRS))
    return path


@pytest.mark.parametrize("name", ["rnn", "transformer"])
def test_a_line_for_each_pair(heedful_cli, tmp_path, pairs, name):
    folder = random_folder(tmp_path / "m", name)
    done = heedful_cli("align", pairs, "--model", folder)
    sources, targets = zip(*PAIRS, strict=True)
    found = heedful.load(folder).align(sources, targets)
    assert (done.code, done.out.split("\n")) == (0, [*map(str, found), ""])
    assert "2 lines with an empty side: no links" in done.err
    records = [json.loads(line) for line in heedful_cli("align", pairs, "--model", folder, "--json").out.splitlines()]
    assert [record["source"] for record in records] == list(sources)
    assert [[link[:2] for link in record["links"]] for record in records] == [
        [[s, t] for s, t, _ in one.links] for one in found
    ]
    assert records[0]["readout"] == found[0].readout.plain()


def test_two_models(heedful_cli, tmp_path, pairs):
    folders = [random_folder(tmp_path / name, name, seed=3) for name in ("rnn", "transformer")]
    sources, targets = zip(*PAIRS, strict=True)
    there, back = map(heedful.load, folders)
    for how in ("", "union"):
        done = heedful_cli(
            "align", pairs, "--model", folders[0], "--reverse", folders[1], *(["--symmetry", how] if how else [])
        )
        found = there.align(sources, targets, reverse=back, symmetry=how)
        assert (done.code, done.out.split("\n")) == (0, [*map(str, found), ""])
    alone = heedful_cli("align", pairs, "--model", folders[0])
    forward = heedful_cli("align", pairs, "--model", folders[0], "--reverse", folders[1], "--symmetry", "forward")
    assert forward.out == alone.out


def one_way(path: Path, source: list[str], target: list[str]) -> Path:
    """A model whose vocabularies are of two languages."""
    parts = random_parts("rnn", kind="word")
    there, back = (Codec.train(side * 3, parts.config.text) for side in (source, target))
    model = build(parts.config.model, len(there), len(back)).eval()
    write_model(path, Parts(parts.config, model, there, back))
    return path


def test_a_reverse_model_that_goes_the_same_way(heedful_cli, tmp_path):
    hindi, english = ["मैं घर जाता हूँ", "वह पढ़ता है"], ["i go home", "he reads"]
    path = tmp_path / "pairs.tsv"
    path.write_text("".join(f"{x}\t{y}\n" for x, y in zip(hindi, english, strict=True)))
    there, back = one_way(tmp_path / "there", hindi, english), one_way(tmp_path / "back", english, hindi)
    again = one_way(tmp_path / "again", [*hindi, "और"], english)
    assert heedful_cli("align", path, "--model", there, "--reverse", back).code == 0
    for wrong, words in ((there, "both read by the same source vocabulary"), (again, "100% of the targets is unknown")):
        done = heedful_cli("align", path, "--model", there, "--reverse", wrong)
        assert (done.code, done.out) == (2, "")
        assert f"the reverse model goes the same way: {words}" in done.err
        done = heedful_cli("readout", there, path, "--reverse", wrong)
        assert (done.code, "the reverse model goes the same way" in done.err) == (2, True)


def test_unknown_words_are_said(heedful_cli, tmp_path):
    folder = one_way(tmp_path / "m", ["a b c"], ["A B C"])
    path = tmp_path / "pairs.tsv"
    path.write_text("a x\tA\nb\tY B\n")
    assert "2 unknown words, read as <unk>: x, Y" in heedful_cli("align", path, "--model", folder).err


def test_what_is_too_long_has_no_links(heedful_cli, tmp_path):
    write_model(tmp_path / "m", random_parts("rnn", max_length=4))
    path = tmp_path / "pairs.tsv"
    path.write_text(f"a b\tA\n{'a ' * 9}\tA\n")
    done = heedful_cli("align", path, "--model", tmp_path / "m")
    assert done.code == 0
    assert done.out.split("\n")[1] == ""
    assert "line 2: " in done.err
    assert "it has no links" in done.err


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--model", "rnn", "--method", "ibm"], "leave out --method and --extra"),
        (["--reverse", "rnn"], "name the first with --model"),
        (["--model", "rnn", "--symmetry", "union"], "name --reverse, a second model"),
        (["--model", "rnn", "--reverse", "rnn", "--symmetry", "reverse"], "would leave out the model"),
        (["--model", "rnn", "--reverse", "rnn", "--symmetry", "both"], "choose from none, product, intersection"),
        (["--model", "fixed"], "this model has no attention"),
        (["--model", "nowhere"], "there is no such model folder"),
    ],
)
def test_what_cannot_be(heedful_cli, tmp_path, pairs, options, words):
    for name in ("rnn", "fixed"):
        if name in options:
            random_folder(tmp_path / name, name)
    done = heedful_cli(
        "align", pairs, *(tmp_path / each if each in ("rnn", "fixed", "nowhere") else each for each in options)
    )
    assert (done.code, done.out) == (2, "")
    assert words in done.err

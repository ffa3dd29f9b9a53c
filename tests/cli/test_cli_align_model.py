"""`heedful align --model`: a line for each pair, as the model aligns it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from random_translators import random_folder

import heedful

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


def test_what_is_too_long_has_no_links(heedful_cli, tmp_path):
    from random_translators import random_parts

    from heedful.folder import write_model

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
        (["--model", "rnn", "--reverse", "rnn", "--symmetry", "both"], "choose from none, intersection"),
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

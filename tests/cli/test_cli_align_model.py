"""`heedful align --model`: a line for each pair, as the model aligns it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from random_translators import random_folder, random_parts

import heedful
from heedful.errors import DataError
from heedful.interop.folder import ModelParts, write_model, write_readout
from heedful.models import build
from heedful.text import Codec
from heedful.trace.readout import Readout

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
    for how, used in (("", "product"), ("union", "union"), ("forward", "forward")):
        more = ["--model", folders[0], "--reverse", folders[1], *(["--symmetry", how] if how else [])]
        links = tmp_path / "links.txt"
        gold = ["--gold", links]
        done = heedful_cli("align", pairs, *more, "--out", links)
        assert done.err.endswith(f" in 4 pairs, symmetry: {used}\n")
        assert heedful_cli("align", pairs, *more, *gold).err.endswith(f", symmetry: {used}\n")
        scores = heedful_cli("align", pairs, *more, *gold, "--json").out.splitlines()[-1]
        assert json.loads(scores)["symmetry"] == used
    # One that takes several links, or none, for a word is joined otherwise.
    write_readout(folders[1], Readout(1, threshold=0.5))
    done = heedful_cli("align", pairs, "--model", folders[0], "--reverse", folders[1])
    assert done.err.endswith(", symmetry: grow-diag-final-and\n")
    alone = heedful_cli("align", pairs, "--model", folders[0])
    assert "symmetry" not in alone.err
    forward = heedful_cli("align", pairs, "--model", folders[0], "--reverse", folders[1], "--symmetry", "forward")
    assert forward.out == alone.out


def one_way(path: Path, source: list[str], target: list[str]) -> Path:
    """A model whose vocabularies are of two languages."""
    parts = random_parts("rnn", kind="word")
    there, back = (Codec.train(side * 3, parts.config.text) for side in (source, target))
    model = build(parts.config.model, len(there), len(back)).eval()
    write_model(path, ModelParts(parts.config, model, there, back))
    return path


def test_a_reverse_model_that_goes_the_same_way(heedful_cli, tmp_path):
    hindi, english = ["मैं घर जाता हूँ", "वह पढ़ता है"], ["i go home", "he reads"]
    path = tmp_path / "pairs.tsv"
    path.write_text("".join(f"{x}\t{y}\n" for x, y in zip(hindi, english, strict=True)))
    there, back = one_way(tmp_path / "there", hindi, english), one_way(tmp_path / "back", english, hindi)
    again = one_way(tmp_path / "again", [*hindi, "और"], english)
    assert heedful_cli("align", path, "--model", there, "--reverse", back).code == 0
    for wrong, words in ((there, "both have the same source vocabulary"), (again, "100% of the targets is unknown")):
        done = heedful_cli("align", path, "--model", there, "--reverse", wrong)
        assert (done.code, done.out) == (2, "")
        assert f"the reverse model translates in the same direction: {words}" in done.err
        done = heedful_cli("readout", there, path, "--reverse", wrong)
        assert (done.code, "the reverse model translates in the same direction" in done.err) == (2, True)


def test_a_model_that_goes_the_other_way(heedful_cli, tmp_path):
    hindi, english = ["मैं घर जाता हूँ", "वह पढ़ता है"], ["i go home", "he reads"]
    path = write(tmp_path / "pairs.tsv", hindi, english)
    there, back = one_way(tmp_path / "there", hindi, english), one_way(tmp_path / "back", english, hindi)
    # What a vocabulary has besides, such as foreign words in the other language, changes nothing.
    mixed = one_way(tmp_path / "mixed", english, [*hindi, *english])
    words = "translates in the other direction: 100% of the sources is unknown to it, and the targets are not; swap "
    columns = f"{words}the two sides (in a file of pairs: --columns 2,1), or name another model"
    for wrong in (back, mixed):
        for verb in (("align", "--model", wrong), ("readout", wrong), ("score", wrong), ("evaluate", wrong)):
            done = heedful_cli(*verb, path)
            assert (done.code, done.out) == (2, "")
            assert f"{wrong}: the model {columns}" in done.err
        assert heedful_cli("align", path, "--model", wrong, "--columns", "2,1").code == 0
        # What was given is not what is advised.
        turned = write(tmp_path / "turned.tsv", english, hindi)
        for verb in (("align", "--model", wrong), ("readout", wrong), ("score", wrong), ("evaluate", wrong)):
            done = heedful_cli(*verb, turned, "--columns", "2,1")
            assert done.code == 2
            assert "--columns 1,2 in place of 2,1" in done.err
        done = heedful_cli("report", wrong, path, "--out", tmp_path / "r.html")  # which has no --columns
        assert (done.code, f"{words}the two sides, or name another model" in done.err) == (2, True)
    assert heedful_cli("evaluate", there, path).code == 0
    with pytest.raises(DataError, match=f"{words}sources and targets, or take another model"):
        heedful.load(back).align(hindi, english)
    # Nothing is said of scripts that a model knows on neither side, nor of one that its other vocabulary has not.
    greek = ["το σπίτι", "διαβάζει"]
    for sources, targets in ((greek, hindi), (greek, greek), (greek, english)):
        for model in (there, back):
            assert heedful_cli("align", write(path, sources, targets), "--model", model).code == 0


def write(path: Path, sources: list[str], targets: list[str]) -> Path:
    path.write_text("".join(f"{x}\t{y}\n" for x, y in zip(sources, targets, strict=True)))
    return path


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
        (["--model", "rnn", "--method", "ibm"], "--method and --extra"),
        (["--reverse", "rnn"], "name the first with --model"),
        (["--model", "rnn", "--symmetry", "union"], "name a second model with --reverse"),
        (["--model", "rnn", "--reverse", "rnn", "--symmetry", "reverse"], "the first model"),
        (["--model", "rnn", "--reverse", "rnn", "--symmetry", "both"], "unknown symmetry 'both'"),
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

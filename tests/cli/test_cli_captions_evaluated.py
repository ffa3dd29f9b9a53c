"""`heedful evaluate`, `compare` and `readout` of models of images: as a person would, with damaged images."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from random_translators import random_folder
from tiny_captioner import captioner, write_captions

import heedful


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = write_captions(tmp_path_factory.mktemp("captions") / "c", 60)
    for family in ("rnn", "transformer", "fixed"):
        captioner(family).save(folder / family)
    return folder


def captions(folder: Path, regions: bool = True) -> list[object]:
    files: list[object] = [folder / "captions.csv", "--images", folder / "images"]
    return [*files, "--regions", folder / "regions.jsonl"] if regions else files


def test_evaluate(heedful_cli, folder, tmp_path):
    saved, how = tmp_path / "out.txt", ("--max-length", "6")
    done = heedful_cli("evaluate", folder / "rnn", *captions(folder), *how, "--save", saved)
    assert done.code == 0
    assert "2 of 60" in done.err
    assert "3.png" in done.err
    assert "4.png" in done.err
    head = done.out.splitlines()[0]
    assert all(name in head for name in ("BLEU", "chrF", "CIDEr-D", "ROUGE-L", "exact %", "pointing"))
    assert len(saved.read_text().splitlines()) == 60
    record = json.loads(heedful_cli("evaluate", folder / "rnn", *captions(folder), *how, "--json").out)
    assert (record["pairs"], len(record["bad_images"])) == (58, 2)
    again = json.loads(heedful_cli("evaluate", saved, *captions(folder), "--json").out)
    assert {name: again[name] for name in ("bleu", "cider", "rouge", "exact")} == {
        name: record[name] for name in ("bleu", "cider", "rouge", "exact")
    }
    assert "pointing" not in again
    against = heedful_cli("evaluate", saved, *captions(folder, regions=False), "--against", folder / "fixed", *how)
    assert "CIDEr-D" in against.out.partition("against")[2]
    assert heedful_cli("compare", folder / "rnn", folder / "fixed", *captions(folder), "--by", "cider").code == 0


def test_what_does_not_go_together(heedful_cli, folder, tmp_path):
    text = random_folder(tmp_path / "m", "rnn")
    short = tmp_path / "short.txt"
    short.write_text("a\n")
    (tmp_path / "pairs.tsv").write_text("a b\tA B\n")
    rows = [folder / "captions.csv", "--columns", "image,caption"]
    for args, words in (
        (["evaluate", text, *captions(folder)], ("--images", "translates text")),
        (["evaluate", folder / "rnn", *rows], ("--images", "captions images")),
        (["evaluate", folder / "rnn", *rows, "--regions", folder / "regions.jsonl"], ("--regions", "--images")),
        (["evaluate", folder / "rnn", *captions(folder), "--copy-unknown"], ("--copy-unknown",)),
        (["evaluate", folder / "rnn", "--images", folder / "images"], ("PAIRS",)),
        (["evaluate", folder / "rnn", *rows, "--images", tmp_path / "nowhere"], ("nowhere",)),
        (["evaluate", short, *captions(folder)], ("short.txt", "60 images")),
        (["compare", folder / "rnn", folder / "fixed", *captions(folder), "--by", "ter"], ("'ter'", "cider")),
        (["report", folder / "rnn", tmp_path / "pairs.tsv"], ("heedful evaluate", "captions images")),
        (["score", folder / "rnn", *rows], ("--images", "captions images")),
        (["score", text, *captions(folder, regions=False)], ("--images", "translates text")),
        (["readout", folder / "rnn", folder / "captions.csv"], ("--images", "--regions")),
        (["readout", folder / "rnn", *captions(folder, regions=False)], ("--regions",)),
        (["readout", text, *captions(folder)], ("--images",)),
        (
            ["train", *captions(folder), "--out", tmp_path / "x", "--valid-target", short],
            ("--valid-target", "--images"),
        ),
        (["readout", folder / "rnn", *captions(folder), "--gold", short], ("--gold",)),
        (["readout", folder / "fixed", *captions(folder)], ("no attention",)),
    ):
        done = heedful_cli(*args)
        assert done.code == 2, args
        assert all(word in done.err for word in words), done.err
        assert len([line for line in done.err.splitlines() if line.startswith("heedful:")]) == 1


def test_score(heedful_cli, folder, tmp_path):
    rows = ["0.png,two small birds", "3.png,two small birds", "nope.png,a", "1.png,", "1.png#1,a red zebra", "1.png,a"]
    (tmp_path / "s.csv").write_text("\n".join(["image,caption", *rows]) + "\n")
    done = heedful_cli("score", folder / "rnn", tmp_path / "s.csv", "--images", folder / "images")
    assert done.code == 0
    translator = heedful.load(folder / "rnn")
    pairs = [("0.png", "two small birds"), ("1.png", "a red zebra"), ("1.png", "a")]
    expected = [translator.score([folder / "images" / image], [text])[0].score for image, text in pairs]
    lines = done.out.splitlines()
    assert [bool(line) for line in lines] == [True, False, False, False, True, True]
    assert [float(line.split()[0]) for line in lines if line] == pytest.approx(expected, abs=1e-3)
    assert all(word in done.err for word in ("3.png", "nope.png", "zebra"))


@pytest.mark.parametrize("family", ["rnn", "transformer"])
def test_readout(heedful_cli, folder, family):
    model = folder / family
    record = json.loads(heedful_cli("readout", model, *captions(folder), "--dry-run", "--json").out)
    assert record["pairs"] == {"chosen_on": 29, "held_out": 29}
    labels = ["best"] if family == "rnn" else ["mean", "best"]
    assert [(row["step"], row["weights"]) for row in record["steps"]] == [
        (step, label) for step in ("same", "next") for label in labels
    ]
    assert record["best"][0]["rate"] == min(row["rate"] for row in record["best"])
    assert record["pointing"]["accuracy"] == pytest.approx(100 * (1 - record["best"][0]["held_out"]), abs=1e-3)
    # The usual read-out points as evaluate says it does.
    usual = record["usual"]
    whole = json.loads(heedful_cli("evaluate", model, *captions(folder), "--json", "--max-length", "3").out)
    words = whole["pointing_words"]["words"]
    held_out = record["pointing"]["words"]
    both = (1 - usual["rate"]) * (words - held_out) + (1 - usual["held_out"]) * held_out
    assert whole["pointing"] == pytest.approx(100 * both / words, abs=1e-2)
    done = heedful_cli("readout", model, *captions(folder))
    assert done.code == 0
    assert "skipped 2 captions" in done.err
    assert done.out.startswith("pointing accuracy")
    readout = heedful.load(model).parts.readout
    if (model / "readout.json").exists():
        assert "step" in readout.chosen
        assert "pointing accuracy" in readout.chosen
    else:
        assert "not written" in done.err

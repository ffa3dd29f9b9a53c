"""`heedful convert --to ctranslate2`, and `heedful translate --engine ctranslate2`."""

from __future__ import annotations

import json

import pytest
from random_translators import random_folder

ctranslate2 = pytest.importorskip("ctranslate2")


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return random_folder(tmp_path_factory.mktemp("models") / "transformer", "transformer")


@pytest.mark.parametrize("more", [(), ("--int8",)])
def test_convert_writes_a_folder_that_ctranslate2_opens(heedful_cli, model, tmp_path, more):
    done = heedful_cli("convert", model, "--to", "ctranslate2", "--out", tmp_path / "n", *more)
    assert done.code == 0, done.err
    assert "ctranslate2" in done.err
    translator = ctranslate2.Translator(str(tmp_path / "n"))
    (result,) = translator.translate_batch([["▁a", "</s>"]], max_decoding_length=5)
    assert result.hypotheses
    again = heedful_cli("convert", model, "--to", "ctranslate2", "--out", tmp_path / "n")
    assert again.code == 2
    assert str(tmp_path / "n") in again.err


def test_convert_names_what_is_not_possible(heedful_cli, model, tmp_path):
    done = heedful_cli("convert", model, "--to", "marian", "--int8", "--out", tmp_path / "n")
    assert done.code == 2
    assert "--int8" in done.err
    recurrent = random_folder(tmp_path / "rnn", "rnn")
    done = heedful_cli("convert", recurrent, "--to", "ctranslate2", "--out", tmp_path / "n")
    assert done.code == 2
    assert "model.family is rnn" in done.err
    assert not (tmp_path / "n").exists()


def test_a_converted_folder_opens_as_the_model(heedful_cli, model, tmp_path):
    heedful_cli("convert", model, "--to", "ctranslate2", "--out", tmp_path / "n")
    texts = b"a b c\nbead cafe\n"
    assert heedful_cli("translate", tmp_path / "n", stdin=texts).out == heedful_cli("translate", model, stdin=texts).out


def test_translate_gives_the_same_lines_and_names_the_engine(heedful_cli, model):
    texts = b"a b c\n\nbead cafe\nA b, c. Then d!\n"
    plain = heedful_cli("translate", model, stdin=texts)
    fast = heedful_cli("translate", model, "--engine", "ctranslate2", stdin=texts)
    assert fast.out == plain.out
    assert fast.code == 0
    linked = [
        heedful_cli("translate", model, "--alignments", *more, stdin=texts).out
        for more in ((), ("--engine", "ctranslate2"))
    ]
    assert linked[0] == linked[1]
    record = json.loads(heedful_cli("translate", model, "a b", "--json", "--engine", "ctranslate2", "--int8").out)
    assert record["engine"] == {"name": "ctranslate2", "precision": "int8", "score": record["engine"]["score"]}
    record = json.loads(heedful_cli("translate", model, "a b", "--json", "--alignments", "--engine", "ctranslate2").out)
    assert record["engine"]["score"] == "heedful"
    assert len(record["word_confidences"]) == len(record["target_words"])
    shown = heedful_cli("translate", model, "a b", "--show", "--engine", "ctranslate2")
    assert "decoded by CTranslate2 float32" in " ".join(shown.out.split())


def test_verbose_says_what_decodes_and_where_the_model_is(heedful_cli, model):
    done = heedful_cli("translate", model, "a b", "--engine", "ctranslate2", "--int8", "--verbose")
    assert done.code == 0, done.err
    assert "CTranslate2 int8" in done.err
    assert "heedful-cache" in done.err


@pytest.mark.parametrize(
    ("options", "named"),
    [
        (("--int8",), "--int8"),
        (("--engine", "ctranslat"), "ctranslate2"),
        (("--engine", "ctranslate2", "--sample"), "--sample"),
        (("--engine", "ctranslate2", "--stream"), "stream"),
        (("--engine", "ctranslate2", "--beam", "2", "--penalty", "gnmt"), "--penalty"),
        (("--engine", "ctranslate2", "--server", "http://localhost:1"), "--engine"),
    ],
)
def test_what_the_engine_does_not_have_is_refused_by_name(heedful_cli, model, options, named):
    done = heedful_cli("translate", model, "a b", *options)
    assert done.code == 2
    assert named in done.err

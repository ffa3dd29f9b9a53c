"""Long texts and sentences: limits, and the messages at a limit."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import Done
from random_translators import random_parts, random_translator

from heedful.decoding import Decoding
from heedful.errors import DataError
from heedful.interop.folder import write_model
from heedful.text.segments import READ, segments
from heedful.translator.translator import CHARACTERS, SPLIT_CHARACTERS


def test_a_text_of_too_many_characters_is_refused_before_anything_is_done(
    tiny: Path, heedful_cli: Callable[..., Done]
) -> None:
    long, longer = "a b. " * (CHARACTERS // 5 + 1), "a b. " * (SPLIT_CHARACTERS // 5 + 1)
    translator = random_translator("rnn")
    for text, split, most in ((long, False, CHARACTERS), (longer, True, SPLIT_CHARACTERS)):
        said = rf"text 2 of 3 \(index 1\) has {len(text):,} characters; at most {most:,}"
        with pytest.raises(DataError, match=said):
            translator.translate(["a", text, "b"], split=split)
        with pytest.raises(DataError, match=f"{len(text):,} characters; at most {most:,}"):
            list(translator.stream(text, split=split))
    for text, options in (
        *((long, (option,)) for option in ("--no-split", "--show", "--alignments")),
        *((longer, options) for options in ((), ("--stream",), ("--html",))),
    ):
        done = heedful_cli("translate", tiny, *options, stdin=f"a b\n{text}\nc\n".encode())
        assert done.code == 2
        assert f"standard input, line 2: has {len(text):,} characters" in done.err
        assert done.out.strip()  # the line before it
    assert heedful_cli("translate", tiny, longer).code == 2


@pytest.mark.parametrize("bad", [b"a " * 500_001, b"a " * 5_500_000, b"\xff\xfe"], ids=["long", "bytes", "encoding"])
def test_lines_before_one_that_cannot_be_translated_are_printed(
    bad: bytes, tiny: Path, heedful_cli: Callable[..., Done]
) -> None:
    alone = heedful_cli("translate", tiny, stdin=b"a b\n" * 50)
    done = heedful_cli("translate", tiny, stdin=b"a b\n" * 50 + bad + b"\nc\n" * 50)
    assert (alone.code, done.code) == (0, 2)
    assert done.out == alone.out
    assert "line 51" in done.err


def test_a_long_text_is_split_and_translated(tiny: Path, heedful_cli: Callable[..., Done]) -> None:
    text = "a b. " * (CHARACTERS // 500) + "a" * CHARACTERS  # over the limit of what is not split
    done = heedful_cli("translate", tiny, "--max-length", 1, stdin=f"{text}\n".encode())
    assert done.code == 0


def test_a_map_of_too_many_cells_is_left_out(
    tiny: Path, heedful_cli: Callable[..., Done], monkeypatch: pytest.MonkeyPatch
) -> None:
    text = b"a b c\n"
    plain = heedful_cli("translate", tiny, stdin=text).out
    shown = heedful_cli("translate", tiny, "--show", stdin=text)
    monkeypatch.setattr("heedful.cli.translate.MAP_CELLS", 1)
    looks: list[object] = []
    monkeypatch.setattr("heedful.translator.pipeline.DecodePipeline.read_attention", lambda *given: looks.append(given))
    done = heedful_cli("translate", tiny, "--show", stdin=text)
    assert (shown.code, done.code, looks) == (0, 0, [])
    assert len(shown.out) > len(done.out)
    assert done.out.strip() == plain.strip()
    assert "more than 1 source tokens × target tokens" in done.err
    done = heedful_cli("translate", tiny, "--show", "--json", stdin=text)
    assert '"weights"' not in done.out
    assert "source tokens × target tokens" in done.out


def test_maps_are_counted_for_each_text(tiny: Path) -> None:
    import heedful

    translator = heedful.load(tiny, "cpu")
    texts = ["a", "a b c d e f g h. a b c d e f g h.", "b"]
    whole = translator.translate(texts, max_length=4)
    sizes = [sum(len(p.trace.source.tokens) * p.length for p in done.sentences) for done in whole]
    translator.trace_cells = sizes[1] - 1
    some = translator.translate(texts, max_length=4)
    assert [done.traced for done in some] == [True, False, True]
    assert [done.text for done in some] == [done.text for done in whole]
    assert [bool(done.notes and "cells" not in done.notes[0]) for done in some][1]
    for mine, other in zip((some[0], some[2]), (whole[0], whole[2]), strict=True):
        assert (mine.trace.words() == other.trace.words()).all()
    translator.trace_cells = sizes[1]
    assert all(done.traced for done in translator.translate(texts, max_length=4))


def test_a_model_never_reads_more_than_its_bound_at_once(tmp_path: Path, heedful_cli: Callable[..., Done]) -> None:
    """Whatever the settings of a model say: 10⁶ tokens in a sentence would take 10¹² weights for each head."""
    write_model(tmp_path / "m", random_parts("transformer", kind="char", max_length=1_000_000))
    translator = random_translator("transformer", kind="char", max_length=1_000_000)
    assert translator.max_source_tokens == READ
    text = "abcdefgh" * 600
    found = segments([text], translator.parts.source, translator.max_source_tokens, sentences=False)
    assert len(found) == 3
    assert max(len(segment.encoded.ids) for segment in found) <= READ
    assert f"reads at once ({READ:,}, the most of any model)" in found[0].notes[0]
    assert "longer than this model reads" in translator.too_long(text)
    args = ("translate", tmp_path / "m", "--no-split", "--show", "--max-length", 2)
    done = heedful_cli(*args, stdin=f"{text}\n".encode())
    assert done.code == 0
    assert "translated in 3 parts" in done.err


def test_usual_models_read_what_their_settings_say() -> None:
    translator = random_translator("transformer", max_length=64)
    assert translator.max_source_tokens == 64
    how = Decoding(max_length=3)
    assert "(64, text.max_length)" in translator.translate("ab" * 200, how).notes[0]

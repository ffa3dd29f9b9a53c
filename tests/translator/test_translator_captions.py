"""`Translator.caption`: images are resized as they are decoded, and one rule limits the length of captions."""

from __future__ import annotations

import weakref
from dataclasses import replace
from typing import Any

import pytest
from tiny_captioner import captioner, picture

from heedful.data.images import LoadedImage
from heedful.decoding import Decoding
from heedful.serve.engine.batches import LocalGreedyBatch
from heedful.serve.engine.request import prepare_image
from heedful.text import END
from heedful.text.segments import Segment
from heedful.translator import Translator, translator
from heedful.translator.pipeline import DecodeBatch, DecodePipeline

pytest.importorskip("PIL.Image")


def endless(notes: dict[str, Any]) -> Translator:
    """Return a captioner that never ends a caption by itself."""
    made = captioner("rnn")
    made.parts.model.output.W.bias.data[END] = -1e9  # type: ignore[union-attr]
    return Translator(replace(made.parts, notes=notes))


def test_one_image_is_decoded_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    alive: list[weakref.ref[LoadedImage]] = []
    most = 0

    def load(image: int) -> LoadedImage:
        nonlocal most
        loaded = picture(image, name=f"{image}.png")
        alive.append(weakref.ref(loaded))
        most = max(most, sum(one() is not None for one in alive))
        return loaded

    monkeypatch.setattr(translator, "load_image", load)
    made = captioner().caption(list(range(6)))
    assert [one.source for one in made] == [f"{i}.png" for i in range(6)]
    assert most == 1


def test_an_image_that_is_encoded_already() -> None:
    made = captioner()
    image = replace(picture(), notes=("the first of 3 frames",))
    encoded = made.parts.image_input.encode(image)
    ours, theirs = made.caption(encoded), made.caption(image)
    assert ours.notes == theirs.notes
    assert "the first of 3 frames" in ours.notes
    assert ours.trace.plain() == theirs.trace.plain()


@pytest.mark.parametrize(
    ("notes", "n"),
    [
        ({"longest_caption": 7}, 7),
        ({}, 32),
        *(({"longest_caption": damaged}, 32) for damaged in (0, -4, 2.5, True, float("nan"))),
        ({"longest_caption": 10**12}, 256),  # text.max_length
    ],
)
def test_the_limit_follows_from_the_longest_training_caption(notes: dict[str, Any], n: int) -> None:
    made = endless(notes)
    pipeline = DecodePipeline(made.parts, made.device, Decoding(), made.attention)
    encoded = made.parts.image_input.encode(picture())
    assert pipeline.limits([encoded, encoded], [(), (5, 6)]) == [2 * n + 20, 2 * n + 22]
    assert DecodeBatch(pipeline, [Segment(0, 0, 1, "a", encoded)], [()]).limits == [2 * n + 20]


def test_captions_samples_beams_and_the_service_have_the_same_limit() -> None:
    made = endless({"longest_caption": 7})
    for settings in ({}, {"beam": 3}, {"sample": True}):
        caption = made.caption(picture(), **settings)
        assert len(caption.trace.log_probs) == 34
        assert "33 tokens, 2n + 20 for n = 7, the longest training caption" in caption.notes[0]
    prepared = prepare_image("m", made, picture(), Decoding())
    request = type("Request", (), {"prepared": prepared})()
    batch = LocalGreedyBatch("key", prepared.pipeline, light=True)
    assert batch.rules([(request, 0)]) == ([34], [()])
    assert len(made.caption(picture(), max_length=5).trace.log_probs) == 6

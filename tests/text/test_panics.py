"""Compiled libraries that panic: one clear error, whatever they raise."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from heedful.config import TextConfig
from heedful.errors import ConfigError, HeedfulError, ModelError, foreign
from heedful.text import Codec


class PanicException(BaseException):
    """As pyo3 raises it when Rust code panics: `except Exception` does not catch it."""


class Panics:
    """Something compiled that panics, and all parts of which do."""

    def __getattr__(self, name: str) -> Panics:
        return self

    def __call__(self, *_: object, **__: object) -> object:
        raise PanicException("index out of bounds: the len is 3 but the index is 4\nnote: run with RUST_BACKTRACE=1")


@pytest.mark.parametrize("kind", ["bpe", "word", "char", "unigram"])
def test_a_tokenizer_that_panics_is_a_model_error(kind: str) -> None:
    codec = Codec.train(["a b c", "bead cafe"], TextConfig(kind=kind, size=40))
    _ = codec._apart, codec._sampler  # type: ignore[attr-defined]  # read from a tokenizer that works
    codec._tokenizer = Panics()  # type: ignore[attr-defined]
    calls: list[Callable[[], object]] = [
        lambda: codec.encode("a b"),
        lambda: codec.ids(["a"]),
        lambda: codec.ids_and_lengths(["zz"]),
    ]
    if kind in ("bpe", "unigram"):
        calls += [lambda: codec.numbered(["yy"]), lambda: codec.variants(["a"], [1], 0.1, 1)]
    for call in calls:
        with pytest.raises(ModelError, match="index out of bounds") as caught:
            call()
        assert "\n" not in str(caught.value)


def test_sentencepiece_that_panics_is_a_model_error() -> None:
    pytest.importorskip("sentencepiece")
    codec = Codec.train(["a b c", "bead cafe"] * 20, TextConfig(kind="sentencepiece", size=40))
    codec._processor = Panics()  # type: ignore[attr-defined]
    for call in (codec.encode, lambda text: codec.ids([text])):
        with pytest.raises(ModelError):
            call("a b")


@pytest.mark.parametrize("passes", [KeyboardInterrupt, SystemExit, MemoryError, ConfigError])
def test_what_is_no_fault_of_the_library_passes(passes: type[BaseException]) -> None:
    with pytest.raises(passes), foreign("what"):
        raise passes("x")


def test_an_error_without_words_is_named_by_its_type() -> None:
    with pytest.raises(HeedfulError, match="what: PanicException"), foreign("what"):
        raise PanicException

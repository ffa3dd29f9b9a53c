"""The tree of errors, their exit codes and the words of a wrong choice."""

import re
import types

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heedful import errors
from heedful.errors import (
    ArgumentError,
    ConfigError,
    DataError,
    HeedfulError,
    MachineError,
    choose,
    nearest,
    suggest_keywords,
)


def documented() -> dict[str, str | None]:
    """Name -> name of its parent, as drawn in the module's docstring."""
    drawing = re.search(r"```\n(.*?)```", errors.__doc__, re.DOTALL).group(1)
    parents: dict[str, str | None] = {}
    path: list[str] = []
    for line in drawing.splitlines():
        branch, name = re.match(r"([ │├└─]*)(\w+) ", line).groups()
        depth = len(branch) // 4
        path[depth:] = [name]
        parents[name] = path[depth - 1] if depth else None
    return parents


def actual(kind: type = HeedfulError, parent: str | None = None) -> dict[str, str | None]:
    tree = {kind.__name__: parent}
    for child in kind.__subclasses__():
        if child.__module__ == errors.__name__:
            tree |= actual(child, kind.__name__)
    return tree


def test_docstring_is_the_tree():
    assert documented() == actual()
    assert len(documented()) > 5  # the drawing was found


def test_all_is_the_truth():
    own = {n for n, v in vars(errors).items() if getattr(v, "__module__", "") == errors.__name__ and n[0] != "_"}
    assert set(errors.__all__) - {"__version__"} == {
        n for n in own if not isinstance(getattr(errors, n), types.ModuleType)
    }
    assert errors.__all__ == sorted(errors.__all__)


@pytest.mark.parametrize("name", sorted(actual()))
def test_exit_codes(name):
    kind = getattr(errors, name)
    assert kind.exit_code == (1 if issubclass(kind, MachineError) else 2)
    assert str(kind("what was wrong")) == "what was wrong"


def test_words_of_a_wrong_choice():
    with pytest.raises(ConfigError) as caught:
        choose("score", "addative", ["scaled", "additive", "concat", "dot", "general"])
    assert str(caught.value) == (
        "unknown score 'addative'; choose one of additive, concat, dot, general, scaled. Did you mean 'additive'?"
    )


def test_no_guess_for_a_word_like_none():
    with pytest.raises(ConfigError) as caught:
        choose("score", "zzz", ["additive", "dot"])
    assert str(caught.value) == "unknown score 'zzz'; choose one of additive, dot."


@pytest.mark.parametrize(
    ("word", "guess"),
    [("LSTM", "lstm"), ("lstn", "lstm"), ("gru2", "gru"), ("", None), ("transformer", None)],
)
def test_nearest(word, guess):
    assert nearest(word, ["gru", "lstm", "rnn"]) == ("" if guess is None else f" Did you mean '{guess}'?")


def test_nearest_takes_any_iterable():
    assert nearest("dott", (w for w in ("dot", "scaled"))) == " Did you mean 'dot'?"


LETTERS = st.text("abc", max_size=3)


@given(LETTERS, st.sets(LETTERS, min_size=1, max_size=4))
def test_choose_gives_back_what_is_allowed_and_nothing_else(word, allowed):
    if word in allowed:
        assert choose("thing", word, allowed) == word
    else:
        with pytest.raises(ConfigError, match=r"^unknown thing"):
            choose("thing", word, allowed)


def test_nothing_quoted_steers_a_terminal():
    error = DataError("x\x1b[2J\x9b\u202e.tsv, line 1: 'मैं'\n\ttwo")
    assert str(error) == f"{error}" == "x\\x1b[2J\\x9b\\u202e.tsv, line 1: 'मैं'\n\ttwo"
    assert str(ConfigError(f"again: {error}")) == f"again: {error}"  # nothing is escaped twice


def test_the_same_under_another_name():
    assert nearest("gpu", ["auto", "cpu", "cuda", "mps"]) == " Did you mean 'cuda'?"
    assert nearest("gpu", ["cpu"]) == " Did you mean 'cpu'?"


def test_a_function_that_guesses():
    class Some:
        @suggest_keywords
        def __init__(self, width=1):
            self.width = width

        @suggest_keywords
        def grow(self, by, *, times=1):
            """Grow."""
            return self.width + by * times

    assert Some(width=2).grow(3, times=2) == 8
    assert Some.grow.__doc__ == "Grow."
    with pytest.raises(ArgumentError, match="Some: unknown argument 'widht'; did you mean 'width'"):
        Some(widht=2)
    with pytest.raises(ArgumentError, match=r"Some\.grow: unknown argument 'time'; did you mean 'times'"):
        Some().grow(1, time=2)
    with pytest.raises(TypeError, match="by"):
        Some().grow()

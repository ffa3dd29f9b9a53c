"""Shapes at boundaries: what `check` returns and the words it refuses with."""

import re
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from heedful.errors import ShapeError, check_shapes
from heedful.notation import AXES, SYMBOLS, markdown

LETTERS = st.sampled_from(sorted(AXES))
SIZES = st.fixed_dictionaries({letter: st.integers(0, 4) for letter in AXES})
SHAPES = st.lists(st.lists(LETTERS, max_size=4), min_size=1, max_size=4)


def tensors(axes: list[list[str]], sizes: dict[str, int]) -> dict[str, tuple[np.ndarray, str]]:
    return {f"t{i}": (np.zeros([sizes[a] for a in letters]), " ".join(letters)) for i, letters in enumerate(axes)}


@given(SHAPES, SIZES)
def test_fitting_shapes_give_their_sizes(axes, sizes):
    used = [a for letters in axes for a in letters]
    assert check_shapes(**tensors(axes, sizes)) == {a: sizes[a] for a in used}


@given(SHAPES, SIZES, st.data())
def test_one_wrong_size_is_named(axes, sizes, data):
    given_ = tensors(axes, sizes)
    letters = data.draw(st.lists(LETTERS, min_size=1, max_size=4, unique=True))
    wrong = data.draw(st.sampled_from(letters))
    shape = [sizes[a] + (a == wrong) for a in letters]
    right = np.zeros([sizes[a] for a in letters])
    # `right` makes sure that the wrong letter has a size already.
    with pytest.raises(ShapeError) as caught:
        check_shapes(**given_, right=(right, " ".join(letters)), wrong=(np.zeros(shape), " ".join(letters)))
    first = next((n for n, (_, a) in given_.items() if wrong in a.split()), "right")
    assert str(caught.value) == (
        f"wrong has shape {tuple(shape)}, expected ({', '.join(f'{a}={sizes[a]}' for a in letters)}): "
        f"{wrong} is {sizes[wrong] + 1} here but {sizes[wrong]} in {first}"
    )


@given(SHAPES, SIZES)
def test_one_axis_too_many_is_counted(axes, sizes):
    given_ = tensors(axes, sizes)
    name, (tensor, letters) = given_.popitem()
    count = len(letters.split())
    with pytest.raises(ShapeError, match=rf"^{name} has shape .*: {count} axes, not {count + 1}$"):
        check_shapes(**given_, **{name: (tensor[None], letters)})


def test_words_for_axes():
    with pytest.raises(ShapeError) as caught:
        check_shapes(x=(np.zeros((2, 5)), "B S"), keep=(np.zeros(5), "B S"))
    assert str(caught.value) == "keep has shape (5,), expected (B=2, S=5): 2 axes, not 1"


def test_a_letter_twice_in_one_tensor():
    assert check_shapes(causal=(np.zeros((3, 3)), "T T")) == {"T": 3}
    with pytest.raises(ShapeError, match=r"T is 4 here but 3 in causal$"):
        check_shapes(causal=(np.zeros((3, 4)), "T T"))


def test_torch_shapes_read_as_tuples():
    with pytest.raises(ShapeError, match=re.escape("h has shape (2, 3), expected (B, S, D): 3 axes, not 2")):
        check_shapes(h=(torch.zeros(2, 3), "B S D"))


def test_every_symbol_is_spelt_with_the_axes():
    for symbol in SYMBOLS:
        assert re.fullmatch(r"\(\w(, \w)*\)", symbol.shape)
        assert set(re.findall(r"\w", symbol.shape)) <= set(AXES)
    assert len({s.code for s in SYMBOLS}) == len(SYMBOLS)


def test_markdown_holds_every_symbol_and_axis():
    text = markdown()
    rows = [line for line in text.splitlines() if line.startswith("| ")]
    assert len(rows) == 1 + len(SYMBOLS)
    assert all(line.count("|") == 5 for line in rows)
    assert all(f"{letter} {meaning}" in text for letter, meaning in AXES.items())


def test_the_page_is_the_code():
    page = Path(__file__).parents[1] / "docs" / "reference" / "notation.md"
    assert page.read_text(encoding="utf-8") == markdown()

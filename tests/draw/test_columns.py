"""Columns of a terminal: numbers worked by hand."""

from __future__ import annotations

import pytest
import regex
from hypothesis import given
from hypothesis import strategies as st

from heedful.draw.terminal import columns


@pytest.mark.parametrize(
    ("text", "wide"),
    [
        *(("", 0), ("home", 4), ("naïve", 5), ("nai\u0308ve", 5), ("मैं", 1), ("हूँ", 1), ("घर", 2), ("किताब", 5)),
        *(("東京", 4), ("ﾊﾝｶｸ", 4), ("Ｗ", 2), ("한국어", 6), ("\u1112\u1161\u11ab", 2), ("مرحبا", 5), ("مَ", 1)),
        *(("ภาษาไทย", 7), ("กำ", 2), ("😀", 2), ("👍🏽", 2), ("👨\u200d👩\u200d👧", 2), ("🇮🇳", 2), ("🇮🇳🇯🇵", 4)),
        *(("❤\ufe0f", 2), ("a\u200bb", 2), ("क्\u200dष", 2), ("می\u200cخواهم", 7), ("\u0301" * 5, 0)),
    ],
)
def test_by_hand(text: str, wide: int) -> None:
    assert columns(text) == wide


@given(st.text(st.characters(exclude_categories=("Cc", "Cs")), max_size=30))
def test_columns_of_clusters_add_up(text: str) -> None:
    assert columns(text) == sum(map(columns, regex.findall(r"\X", text)))

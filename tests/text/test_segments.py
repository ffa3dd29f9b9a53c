"""Texts are cut into sentences until somebody says that nobody needs them."""

from __future__ import annotations

import pytest
from random_translators import random_translator

from heedful.text.segments import segments


def test_check_ends_the_cutting() -> None:
    """What it raises is raised before the next sentence is cut."""
    calls = []

    def check() -> None:
        calls.append(1)
        if len(calls) == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        segments(["A b c. D e f. A b c."] * 3, random_translator("rnn").parts.source, 100, check=check)
    assert len(calls) == 3

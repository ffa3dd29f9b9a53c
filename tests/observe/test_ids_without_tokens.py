"""Ids that a model has and its tokenizer has not: embeddings are often padded to a multiple of 64."""

from __future__ import annotations

import pytest
from tiny_transformers import make

from heedful.observe.tokens import text_of


@pytest.mark.parametrize("architecture", ["bert", "gpt2", "t5"])
def test_they_are_shown_by_number(architecture: str) -> None:
    model, tokenizer = make(architecture)
    missing = len(tokenizer) + 3
    assert missing < model.config.vocab_size
    text = text_of(tokenizer, [7, missing, 8])
    assert text.tokens[1] == f"<id {missing}>"
    assert text.spans[1][0] == text.spans[1][1]
    assert "None" not in text.text

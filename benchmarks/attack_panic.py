"""`heedful` with tokenizers that panic at texts with a skull: what a panic in foreign code does to a service."""

from __future__ import annotations

from typing import Any

from tokenizers import Tokenizer

from heedful.text import tokenizer as module

PANICS = Tokenizer.from_str(
    '{"version": "1.0", "truncation": {"direction": "Right", "max_length": 2, "strategy": "LongestFirst", "stride": 5},'
    '"padding": null, "added_tokens": [], "normalizer": null, "pre_tokenizer": null, "post_processor": null,'
    '"decoder": null, "model": {"type": "BPE", "unk_token": "a", "vocab": {"a": 0}, "merges": []}}'
)


class Panicking:
    """A tokenizer whose Rust code panics at some texts."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.tokenizer = tokenizer

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401
        return getattr(self.tokenizer, name)

    def encode_batch(self, texts: list[str], **options: Any) -> Any:  # noqa: ANN401
        """Cut texts, or panic."""
        if any("☠" in text for text in texts):
            PANICS.encode("aaaaaaaa")
        return self.tokenizer.encode_batch(texts, **options)


def install() -> None:
    """Put it around every tokenizer that is made from now on."""
    begin = module.Tokens.__init__

    def init(self: module.Tokens, tokenizer: Tokenizer, *more: Any, **named: Any) -> None:  # noqa: ANN401
        begin(self, tokenizer, *more, **named)
        self._tokenizer = Panicking(self._tokenizer)  # type: ignore[assignment]

    module.Tokens.__init__ = init  # type: ignore[method-assign]


if __name__ == "__main__":
    from heedful.cli import main

    install()
    main()

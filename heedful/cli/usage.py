"""Hints for options that do not exist, or stand in the wrong place."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from typer.core import TyperCommand, TyperGroup

__all__ = ["HintingCommand", "HintingGroup"]

AFTER = ("--quiet", "-q", "--verbose", "-v")  # what every command has


class HintingGroup(TyperGroup):
    """`heedful`: says of an option of the commands that it goes after the command."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:  # noqa: ANN401  (of typer's own copy of click)
        """Read what stands before the command."""
        with _hinting(lambda option: f"It goes after the command: heedful COMMAND {option}" if option in AFTER else ""):
            return super().parse_args(ctx, args)


class HintingCommand(TyperCommand):
    """A command: says of an option that is a setting how it is set, where the command has --set."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:  # noqa: ANN401
        """Read what stands after the command."""
        has_set = any("--set" in param.opts for param in self.params)
        with _hinting(_setting if has_set else lambda option: ""):
            return super().parse_args(ctx, args)


@contextmanager
def _hinting(hint: Callable[[str], str]) -> Iterator[None]:
    """Add a hint to the error for an unknown option."""
    try:
        yield
    except Exception as error:
        # Its class is click's, or that of the copy of click that newer versions of typer have.
        if type(error).__name__ == "NoSuchOption" and (said := hint(error.option_name)):  # type: ignore[attr-defined]
            error.message = f"{error.message}. {said}"  # type: ignore[attr-defined]
            error.possibilities = None  # type: ignore[attr-defined]
        raise


def _setting(option: str) -> str:
    """Return how the setting that an option may be is set, or nothing."""
    from heedful.config import section_of
    from heedful.errors import ELSEWHERE

    known = section_of()
    name = option.removeprefix("--").replace("-", "_")
    name = ELSEWHERE.get(name, name)
    key = "family" if name == "model" else name
    return f"It is a setting: --set {known[name]}.{key}=…" if name in known else ""

"""A rich console that data cannot steer."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment

from heedful.errors import printable

__all__ = ["SafeConsole"]


class SafeConsole(Console):
    """Escapes control characters in the text of everything drawn; the control codes of rich itself pass."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """Render an object into segments of safe text."""
        for segment in super().render(renderable, options):
            yield segment if segment.control else Segment(printable(segment.text), segment.style)

    def print(self, *objects: object, **options: Any) -> None:  # noqa: ANN401
        """Print objects; texts are escaped first, so that lines are wrapped at the right place."""
        super().print(*(printable(one) if isinstance(one, str) else one for one in objects), **options)

"""What a service allows: each limit has a number and a clear answer when it is reached."""

from __future__ import annotations

from dataclasses import dataclass, fields

from heedful.errors import ConfigError

__all__ = ["Limits"]

ZERO = ("wait", "drain", "connections_per_address")  # limits that may be 0


@dataclass(frozen=True, kw_only=True)
class Limits:
    """What a service allows, and how it shares its time.

    Of a request: `chars` of a text, `items` (texts or pairs), `sentences` in all, `body` bytes, `beam` (and n_best),
    `cells` of its figures (tokens of a text times those of its translation), `png_cells` of one that is drawn as PNG
    (words times words), and `seconds` until it is given up. Of the
    service: `requests` that are worked on or wait, and sentences that wait, `queue`, where a request counts for at most
    `batch_rows`, so that none can fill it alone. Sentences are decoded together as long as they have at most
    `batch_tokens` tokens, of the source and of a prefix, times the width of the beam, and at most `lanes` batches take
    turns; a sentence waits at most `wait` seconds for company, or for those before it to make room. `drain` is how many
    seconds there are to finish when the service is stopped.

    Of connections: how many may be open, `connections`, and of one address, `connections_per_address` (0: any number).
    In seconds: how long one may be `idle`, and how long all of a header, `header_seconds`, and all of a body,
    `body_seconds`, may take to arrive.
    """

    chars: int = 20_000
    items: int = 128
    sentences: int = 2_000
    body: int = 2_000_000
    beam: int = 16
    cells: int = 500_000
    png_cells: int = 70_000
    seconds: float = 30.0
    requests: int = 256
    queue: int = 1_000
    batch_tokens: int = 4_096
    batch_rows: int = 64
    lanes: int = 3
    wait: float = 0.02
    drain: float = 30.0
    connections: int = 1_000
    connections_per_address: int = 256
    idle: float = 60.0
    header_seconds: float = 10.0
    body_seconds: float = 30.0

    def __post_init__(self) -> None:
        """Refuse what would let nothing through."""
        for each in fields(self):
            value = getattr(self, each.name)
            if isinstance(value, bool) or not isinstance(value, int | float):
                raise ConfigError(f"the limit {each.name} is {value!r}; it is a number")
            # NaN is over nothing.
            if not value >= 0 or (value == 0 and each.name not in ZERO) or value > 10**12:
                least = "of 0 or more" if each.name in ZERO else "above 0"
                raise ConfigError(f"the limit {each.name} is {value}; it is a number {least}")
            if each.type == "int" and value != int(value):
                raise ConfigError(f"the limit {each.name} is {value}; it is a whole number")

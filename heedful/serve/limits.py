"""The limits of a service, and the errors raised when one is reached."""

from __future__ import annotations

from dataclasses import dataclass, fields

from heedful.errors import ConfigError, HeedfulError

ZERO = ("wait", "drain", "connections_per_address")  # limits that may be 0


class TooLargeError(HeedfulError):
    """A request exceeds a limit: the `field` at fault, and for a list the `allowed` number of items."""

    def __init__(self, message: str, field: str = "", allowed: int | None = None) -> None:
        super().__init__(message)
        self.field, self.allowed = field, allowed


class OverloadedError(HeedfulError):
    """Too much work is queued; retry `after` so many seconds."""

    def __init__(self, message: str, after: int) -> None:
        super().__init__(f"{message}; ask again in {after} s")
        self.after = after


@dataclass(frozen=True, kw_only=True)
class Limits:
    """What a service allows, and how it shares its time.

    Per request: `chars` per text, `items` (texts or pairs), `sentences` in all, `body` bytes (besides an image), `beam`
    (and n_best), `image_bytes` of an image's file, `image_pixels` of its width times its height, `cells` of figures
    (source tokens × target tokens), `png_cells` of a PNG (source words × target words), and `seconds` until it is
    abandoned.

    Of the engine: `requests` that run or wait, and queued sentences, `queue`, where a request counts for at most
    `batch_rows`, so that none can fill the queue alone. A batch has at most `batch_rows` sentences and `batch_tokens`
    tokens (source and prefix, padded, times the beam width), and at most `batches` static batches take turns. A
    sentence waits at most `wait` seconds for others to join it, or for room in a batch. `drain` is the number of
    seconds to finish running requests at shutdown.

    Of connections: `connections` in all, `connections_per_address` (0: no limit), seconds that one may be `idle`, and
    seconds for a whole header, `header_seconds`, and a whole body, `body_seconds`.
    """

    chars: int = 20_000
    items: int = 128
    sentences: int = 2_000
    body: int = 2_000_000
    beam: int = 16
    image_bytes: int = 10_000_000
    image_pixels: int = 25_000_000
    cells: int = 500_000
    png_cells: int = 70_000
    seconds: float = 30.0
    requests: int = 256
    queue: int = 1_000
    batch_tokens: int = 4_096
    batch_rows: int = 64
    batches: int = 3
    wait: float = 0.02
    drain: float = 30.0
    connections: int = 1_000
    connections_per_address: int = 256
    idle: float = 60.0
    header_seconds: float = 10.0
    body_seconds: float = 30.0

    def __post_init__(self) -> None:
        """Raise ConfigError for a limit that is no number, or would let nothing through."""
        for each in fields(self):
            value = getattr(self, each.name)
            if isinstance(value, bool) or not isinstance(value, int | float):
                raise ConfigError(f"the limit {each.name} is {value!r}; expected a number")
            # NaN fails every comparison.
            if not value >= 0 or (value == 0 and each.name not in ZERO) or value > 10**12:
                least = "of 0 or more" if each.name in ZERO else "above 0"
                raise ConfigError(f"the limit {each.name} is {value}; expected a number {least}")
            if each.type == "int" and value != int(value):
                raise ConfigError(f"the limit {each.name} is {value}; expected a whole number")

    def caption_body(self, form: bool = False) -> int:
        """Return the most bytes of a request with an image: a form with the file, or JSON with the file in base64."""
        file = self.image_bytes if form else 4 * -(-self.image_bytes // 3)
        return file + self.body

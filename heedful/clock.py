"""Times for people."""

from __future__ import annotations

__all__ = ["clock"]


def clock(seconds: float) -> str:
    """Return a time as minutes and seconds, or with hours.

    >>> clock(75), clock(3_700), clock(0.4)
    ('1:15', '1:01:40', '0:00')
    """
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"

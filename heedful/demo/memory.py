"""How much memory processes take."""

from __future__ import annotations

from pathlib import Path

__all__ = ["resident"]


def resident(process: int) -> float:
    """Return the bytes of memory that a process holds now; 0 where the system does not say, or it has ended."""
    try:
        lines = Path(f"/proc/{process}/status").read_text(encoding="ascii", errors="replace").splitlines()
    except OSError:
        return 0.0
    return next((1024.0 * float(line.split()[1]) for line in lines if line.startswith("VmRSS:")), 0.0)

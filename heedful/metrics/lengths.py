"""Records of scores by the length of the source."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

__all__ = ["LengthRow", "LengthTable"]


class LengthRow(NamedTuple):
    """The scores of the sentences of `low` to `high` source words; `high` None: no upper end."""

    low: int
    high: int | None
    pairs: int
    bleu: float
    chrf: float
    exact: float
    ter: float | None = None

    @property
    def label(self) -> str:
        """The lengths as a person writes them."""
        return f"{self.low}+" if self.high is None else f"{self.low}–{self.high}"

    def plain(self) -> dict[str, Any]:
        """Return what JSON can hold; what was not measured is left out."""
        return {name: value for name, value in self._asdict().items() if name != "ter" or value is not None}


@dataclass(frozen=True)
class LengthTable:
    """Scores by source length, the row of all sentences, and sacrebleu's signatures. Scores are percentages."""

    rows: tuple[LengthRow, ...]
    total: LengthRow
    bleu_signature: str
    chrf_signature: str
    ter_signature: str = ""

    def plain(self) -> dict[str, Any]:
        """Return what JSON can hold; TER only where it was measured."""
        total = {k: v for k, v in self.total.plain().items() if k not in ("low", "high")}
        return {
            **total,
            "bleu_signature": self.bleu_signature,
            "chrf_signature": self.chrf_signature,
            **({"ter_signature": self.ter_signature} if self.ter_signature else {}),
            "by_length": [row.plain() for row in self.rows],
        }

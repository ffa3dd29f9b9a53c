"""What a run would take, for people."""

from __future__ import annotations

from typing import TYPE_CHECKING

from heedful.training.progress import clock

if TYPE_CHECKING:
    from heedful.training import Estimate

__all__ = ["report"]


def report(found: Estimate) -> str:
    """Return an estimate as a table."""
    pairs = max(found.pairs, 1)
    rows = {
        "pairs": f"{found.pairs:,} to learn from, {found.valid_pairs:,} for validation",
        "tokens": (
            f"{found.source_tokens:,} source ({found.source_tokens / pairs:.1f} a sentence), "
            f"{found.target_tokens:,} target ({found.target_tokens / pairs:.1f})"
        ),
        "vocabularies": f"{found.vocabularies[0]:,} and {found.vocabularies[1]:,} tokens",
        "weights": f"{found.weights:,}",
        "memory": (
            f"{found.bytes_at_most / 2**30:.2f} GiB at most in these steps, one of them with the largest batch; "
            f"{found.bytes_kept / 2**30:.2f} GiB more on the CPU for the best weights and checkpoints"
        ),
        "speed": (
            f"{found.tokens_per_second:,.0f} target tokens/s, {1000 * found.seconds_per_step:.0f} ms a step, "
            f"with {found.threads} thread{'s' * (found.threads > 1)} on the CPU"
        ),
        "one epoch": f"{found.steps_per_epoch:,} steps, {clock(found.seconds_per_epoch)}",
        "expected": _expected(found),
        "at most": (
            f"{found.steps:,} steps ({found.steps / found.steps_per_epoch:,.1f} epochs), {clock(found.seconds)}, "
            "besides validations and checkpoints"
        ),
    }
    return "\n".join(f"{name:<13} {words}" for name, words in rows.items())


def _expected(found: Estimate) -> str:
    """Say when such a run usually ends."""
    if found.expected_steps is None or found.expected_seconds is None:
        return "not known for such a run: it ends when nothing gets better (training.patience)"
    if found.expected_steps == found.steps:
        return "all steps: such runs usually get better to the end"
    epochs = found.expected_steps / found.steps_per_epoch
    return (
        f"{found.expected_steps:,} steps ({epochs:,.1f} epochs), {clock(found.expected_seconds)}: when such runs "
        "usually stop getting better"
    )

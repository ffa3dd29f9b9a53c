"""`heedful evaluate`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from heedful.cli.decoding import (
    Alpha,
    Beam,
    CopyUnknown,
    MaxLength,
    MinLength,
    NoRepeat,
    Penalty,
    With,
    naming_options,
    opened,
)
from heedful.cli.notes import Notes
from heedful.cli.options import (
    BatchTokens,
    Columns,
    Device,
    Json,
    Model,
    PairFiles,
    Source,
    Target,
    Threads,
    check_pairs,
    print_json,
    say,
)

if TYPE_CHECKING:
    from heedful.trace import LengthRow, LengthTable

__all__ = ["evaluate", "table"]


def evaluate(
    model: Model,
    pairs: PairFiles = None,
    *,
    source: Source = None,
    target: Target = None,
    columns: Columns = "1,2",
    beam: Beam = 1,
    penalty: Penalty = "length",
    alpha: Alpha = 1.0,
    min_length: MinLength = 0,
    max_length: MaxLength = 0,
    no_repeat: NoRepeat = 0,
    copy_unknown: CopyUnknown = False,
    with_: With = None,
    device: Device = "auto",
    threads: Threads = 0,
    batch_tokens: BatchTokens = 4096,
    json: Json = False,
) -> None:
    """Translate test pairs and score the translations: BLEU, chrF and exact match, by source length.

    Every line is translated as one sentence, whatever marks stand in it.
    """
    check_pairs(pairs, source, target)
    from heedful.decoding import Decoding
    from heedful.metrics import by_length
    from heedful.text import count
    from heedful.training import Inputs

    with naming_options():
        how = Decoding(
            beam=beam,
            penalty=penalty,
            alpha=alpha,
            min_length=min_length,
            max_length=max_length,
            no_repeat=no_repeat,
        )
        inputs = Inputs(tuple(map(str, pairs or ())), columns, *(str(p) if p else None for p in (source, target)))
        found, _ = inputs.read()
        translator = opened(model, with_, device, threads)
        if found.blank or found.half:
            say(f"passed over {found.blank + found.half:,} lines with an empty side")
        sources = [p.source for p in found.pairs]
        translations = translator.translate(
            sources, how, split=False, copy_unknown=copy_unknown, trace=False, batch_tokens=batch_tokens
        )
    notes = Notes()
    for translation in translations:
        notes.add(translation.notes)
    notes.say()
    scores = by_length(
        [count(p.source) for p in found.pairs], [t.text for t in translations], [p.target for p in found.pairs]
    )
    if json:
        print_json({"model": str(model), **scores.plain()})
    else:
        print(table(scores))


def table(scores: LengthTable) -> str:
    """Return scores as a table for people."""
    lines = [f"{'source words':<12} {'pairs':>7} {'BLEU':>6} {'chrF':>6} {'exact %':>8}"]
    lines += [_line(row.label, row) for row in scores.rows]
    lines += [_line("all", scores.total), "", f"BLEU: {scores.bleu_signature}", f"chrF: {scores.chrf_signature}"]
    lines.append("both of NFC text")
    return "\n".join(lines)


def _line(label: str, row: LengthRow) -> str:
    return f"{label:<12} {row.pairs:>7,} {row.bleu:>6.1f} {row.chrf:>6.1f} {row.exact:>8.1f}"

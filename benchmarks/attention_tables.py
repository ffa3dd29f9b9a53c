"""What `attention_links` measures: how well the links of trained models agree with gold links, by several read-outs.

Every other sentence is in the half that nothing is chosen on; the table has the error rates of that half alone, so that
its columns can be compared. The records have those of all sentences besides.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from alignment_sets import AlignmentSet

import heedful
from heedful.alignment import Gold, Links, flip, parse, score
from heedful.alignment.select_readout import WeightTable, rank_readouts, rank_symmetries
from heedful.trace.readout import Readout
from heedful.translator import Translator
from heedful.translator.aligning import usual_symmetry
from heedful.translator.default_readout import weight_table

__all__ = ["COLUMNS", "measure", "table"]

MOST = 500  # sentences of which every other one chooses
COLUMNS = {
    "naive": "naive",
    "usual": "usual",
    "own": "as guided",
    "taught": "chosen without gold",
    "chosen": "chosen on the other half",
    "both_own": "both directions, as guided",
    "both_taught": "both, without gold",
    "both_chosen": "both, chosen on the other half",
}


class Model(NamedTuple):
    """One direction of a pair of models: what it saw in some sentences and in all, and the right links, its way round.

    `taught` are the statistical aligner's links.
    """

    translator: Translator
    few: WeightTable
    every: WeightTable
    gold: Gold
    taught: list[Links]


def measure(data: AlignmentSet, folder: Path, family: str, kind: str, device: str) -> dict[str, Any] | None:
    """Measure two models, one for each direction, and the links of the teacher; None where they are not there."""
    places = [folder / f"{family}-{kind}-{way}" for way in ("there", "back")]
    if not all((place / "config.json").exists() for place in places):
        return None
    taught = taught_links(folder, data)
    there, back = (heedful.load(str(place), device) for place in places)
    models = open_model(there, data, taught), open_model(back, turned(data), list(map(flip, taught)))
    return {
        "gold": data.title,
        "teacher": rates(taught, data.gold),
        "family": family,
        "kind": kind,
        "training": [json.loads(file.read_bytes()) for place in places if (file := done(place)).exists()],
        "rates": rates_of(*models, data.gold),
    }


def done(place: Path) -> Path:
    """Return the file that says how long a model was trained."""
    return place.with_name(f"{place.name}.json")


def taught_links(folder: Path, data: AlignmentSet) -> list[Links]:
    """Return the links of the gold sentences that the statistical aligner made, as they were written down."""
    rows, links = ((folder / name).read_text(encoding="utf-8").split("\n") for name in ("there.tsv", "there.links"))
    found = dict(zip(rows, links, strict=True))
    return [parse(found.get("\t".join(pair), "")) for pair in data.pairs]


def turned(data: AlignmentSet) -> AlignmentSet:
    """Return a set seen from its target language."""
    gold = data.gold._replace(sure=list(map(flip, data.gold.sure)), possible=list(map(flip, data.gold.possible)))
    return data._replace(pairs=[(y, x) for x, y in data.pairs], gold=gold, extra=[])


def open_model(translator: Translator, data: AlignmentSet, taught: list[Links]) -> Model:
    """Let a model read all sentences of a set."""
    sides = [[pair[side] for pair in data.pairs] for side in (0, 1)]
    few = weight_table(translator, sides[0][:MOST], sides[1][:MOST])
    every = few if len(data.pairs) <= MOST else weight_table(translator, sides[0], sides[1])
    return Model(translator, few, every, data.gold, taught)


def rates_of(there: Model, back: Model, gold: Gold) -> dict[str, dict[str, Any]]:
    """Return the error rates of two models, one direction alone and both together, by each way to read them."""
    config = there.translator.config.model
    found = {
        "naive": one_way(there, Readout.naive(config)),
        "usual": one_way(there, Readout.usual(there.translator.config)),
    }
    chosen = [choose_on(model, model.gold.sure, model.gold.possible) for model in (there, back)]
    by_teacher = [choose_on(model, model.taught, model.taught) for model in (there, back)]
    found |= {"chosen": one_way(there, chosen[0]), "taught": one_way(there, by_teacher[0])}
    found["both_chosen"] = both_ways(there, back, chosen, (gold.sure, gold.possible))
    found["both_taught"] = both_ways(there, back, by_teacher, (there.taught, there.taught))
    own = [model.translator.parts.readout for model in (there, back)]
    if own[0] and own[1]:
        found["own"] = one_way(there, own[0])
        found["both_own"] = both_ways(there, back, [own[0], own[1]], None)
    return found


def choose_on(model: Model, sure: Sequence[Links], possible: Sequence[Links]) -> Readout:
    """Return the read-out of one direction that agrees best with given links."""
    return rank_readouts(model.few, model.few.gold_cells(sure[:MOST], possible[:MOST]))[0].readout


def one_way(model: Model, readout: Readout) -> dict[str, Any]:
    """Return what one direction makes."""
    return {**rates(model.every.links(readout), model.gold), "readout": str(readout), "plain": readout.plain()}


def both_ways(
    there: Model,
    back: Model,
    readouts: Sequence[Readout],
    right: tuple[Sequence[Links], Sequence[Links]] | None,
) -> dict[str, Any]:
    """Join two directions in the way that agrees best with given links, or as is usual."""
    forward, reverse = there.every.directed(readouts[0]), [one.flipped() for one in back.every.directed(readouts[1])]
    how = usual_symmetry(readouts[0], readouts[1])
    if right is not None:
        some = [side[:MOST] for side in right]
        how = rank_symmetries(there.few, reverse[:MOST], some[0], some[1], readouts[0])[0].readout.symmetry
    links = [one.combined(other, how) for one, other in zip(forward, reverse, strict=True)]
    return {**rates(links, there.gold), "symmetry": how, "readouts": [str(readout) for readout in readouts]}


def rates(found: Sequence[Links], gold: Gold) -> dict[str, float]:
    """Return the error rates of links, in %: of the half that nothing is chosen on, and of all."""
    held = slice(1, None, 2)
    return {
        "held_out": 100 * score(found[held], gold.sure[held], gold.possible[held]).error_rate,
        "all": 100 * score(found, gold.sure, gold.possible).error_rate,
    }


def table(records: Sequence[dict[str, Any]]) -> str:
    """Return the table for docs/lab/alignments.md: error rates of the half that nothing was chosen on."""
    lines = [
        "| gold | model | steps | " + " | ".join(COLUMNS.values()) + " |",
        "|---|---|---:|" + "---:|" * len(COLUMNS),
    ]
    said = set()
    for record in records:
        if record["gold"] not in said:
            said.add(record["gold"])
            lines.append(f"| {record['gold']} | statistical aligner | | {_cells({'both_taught': record['teacher']})} |")
        steps = " and ".join(dict.fromkeys(f"{told['steps']:,}" for told in record["training"]))
        lines.append(f"| | {record['family']}, {record['kind']} | {steps} | {_cells(record['rates'])} |")
    return "\n".join(lines)


def _cells(rates: dict[str, dict[str, Any]]) -> str:
    return " | ".join(f"{rates[name]['held_out']:.1f}" if name in rates else "" for name in COLUMNS)

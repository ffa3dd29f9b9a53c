"""Read-outs that need no gold: the default by rule and `heedful readout --text`, measured on gold links.

python benchmarks/default_readout.py --data DIR [--models DIR] [--lines N] [--json FILE]

The model is the Argos package of Opus-MT zh-en in a package of PyPI. It has no SentencePiece model of English, so that
given translations are cut by the ranks of the tokens in the vocabulary.
The default is chosen by the rule, with an empty cache; then `heedful.select_readout` chooses on the Chinese side of the
odd lines of `word-alignment/zhen`, without gold links and without references. Both, and those to compare with, are
measured on the gold links of the even lines. The best by gold is chosen on the gold links of the odd lines.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import time
from pathlib import Path

import heedful  # isort: skip  (before torch, so that waiting threads sleep)
from model_packages import MODELS, OPUS_ZH_EN, fetch

from heedful.alignment.gold import Gold, read_gold
from heedful.alignment.select_readout import WeightTable, measure_readout, rank_readouts
from heedful.data.files import read_lines
from heedful.trace.readout import Readout
from heedful.translator.default_readout import weight_table


def read_zhen(data: Path) -> tuple[list[tuple[str, str]], Gold]:
    """Return the pairs with gold links; words are separated by spaces."""
    folder = data / "word-alignment" / "zhen"
    rows = [line.split("|||") for line in read_lines(folder / "zhen.src-tgt.gz")]
    pairs = [(source.strip(), target.strip()) for source, target in rows]
    lengths = [(len(x.split()), len(y.split())) for x, y in pairs]
    return pairs, read_gold(list(read_lines(folder / "zhen.gold.gz")), lengths, base=1, name="zhen", lenient=True)


def measure(table: WeightTable, gold: Gold, readout: Readout) -> float:
    """Return the alignment error rate in %, of the even lines, which are the second half."""
    return 100 * measure_readout(table, table.gold_cells(gold.sure, gold.possible), readout).held_out


def main() -> None:
    """Print the table."""
    options = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    options.add_argument("--data", type=Path, required=True, help="folder that has word-alignment/zhen")
    options.add_argument("--models", type=Path, default=MODELS, help=f"folder to keep the model in (default: {MODELS})")
    options.add_argument("--lines", type=int, default=450)
    options.add_argument("--json", type=Path)
    args = options.parse_args()
    pairs, gold = read_zhen(args.data)
    pairs, gold = pairs[: args.lines], Gold(gold.sure[: args.lines], gold.possible[: args.lines])
    translator = heedful.load(fetch(OPUS_ZH_EN, args.models), "cpu", threads=1)
    config = translator.config
    rows = {"naive": Readout.naive(config.model), "usual": Readout.usual(config)}
    seconds = {}
    with tempfile.TemporaryDirectory() as cache:
        os.environ["HEEDFUL_CACHE"] = cache
        for name in ("by rule", "from the cache"):
            wall, cpu = time.perf_counter(), time.process_time()
            rows["by rule"] = heedful.Translator(translator.parts, translator.device, threads=1).readout
            seconds[name] = (time.perf_counter() - wall, time.process_time() - cpu)
        wall, cpu = time.perf_counter(), time.process_time()
        selection = heedful.select_readout(translator, text=[source for source, _ in pairs[::2]])
        seconds["by text"] = (time.perf_counter() - wall, time.process_time() - cpu)
    rows["by text"] = selection.readout
    rows["best by text, saved or not"] = selection.ranked[0].readout
    print(f"{selection.table()}\n{selection.why_not_saved() or 'saved'}\n")
    table = weight_table(translator, [x for x, _ in pairs], [y for _, y in pairs])
    rows["by gold"] = rank_readouts(table, table.gold_cells(gold.sure, gold.possible))[0].readout
    record = {}
    for name, readout in rows.items():
        rate = measure(table, gold, readout)
        record[name] = {"rate": rate, "readout": readout.plain()}
        print(f"{rate:5.1f}  {name}: {readout.describe()}")
    for name, (wall, cpu) in seconds.items():
        print(f"{name}: {wall:.1f} s, {cpu:.1f} CPU seconds")
    if args.json:
        args.json.write_text(json.dumps({"rates": record, "seconds": seconds}, indent=2), encoding="utf-8")


if __name__ == "__main__":
    main()

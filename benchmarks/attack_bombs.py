"""Files from strangers that would take too much memory, hang, or be believed: each is given to a command of heedful.

A case is right when the command ends in time, with an expected exit code and words, without a traceback, and with at
most 200 MiB more than the same command takes for a good file. All files are made in a temporary folder; large ones are
sparse, or compressed in pieces, and cost no space.
"""

from __future__ import annotations

import gzip
import io
import json
import os
import shutil
import zipfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any

from attack_commands import Ended, command

MEMORY = 200.0  # MiB over the same command with a good file
LARGE = 6 * 10**9  # bytes of a sparse file
TRAIN = ["--preset", "none", "--device", "cpu", "--threads", "1", "--steps", "4", "--model", "transformer"]
TRAIN += [
    part
    for key, value in {
        "model.width": 16,
        "model.heads": 4,
        "model.inner": 16,
        "model.layers": 1,
        "text.size": 120,
        "text.joint": "true",
        "training.batch_sentences": 16,
        "training.valid_pairs": 8,
        "training.valid_every": 2,
        "training.checkpoint_every": 2,
        "training.precision": "fp32",
    }.items()
    for part in ("--set", f"{key}={value}")
]
TEXT = b"a small dog\n"
SENTENCE = "a small old dog sees the cat near my house and eats green apples today"


@dataclass
class Files:
    """Good files to begin with, made by the code under attack, and where hostile ones are made."""

    code: Path
    folder: Path
    peaks: dict[str, float] = field(default_factory=dict)
    outcomes: list[str] = field(default_factory=list)
    broken: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        self.pairs, self.good = self.folder / "pairs.tsv", self.folder / "good"
        self.cache = {"HEEDFUL_CACHE": str(self.folder / "cache")}
        if not (self.good / "config.json").exists():
            words = SENTENCE.split()
            lines = [" ".join(words[(i * k) % len(words)] for k in range(1, 3 + i % 5)) for i in range(1, 300)]
            self.pairs.write_text("".join(f"{x}\t{x.upper()}\n" for x in lines), encoding="utf-8")
            ended = self.run("train", self.pairs, "--out", self.good, *TRAIN)
            if ended.code != 0:
                raise RuntimeError(f"a model cannot be trained: {ended.stderr[-500:]}")

    def run(self, *arguments: str | Path, **more: Any) -> Ended:  # noqa: ANN401
        """Run a command."""
        return command(arguments, self.code, environment={**self.cache, **more.pop("environment", {})}, **more)

    def copy(self, name: str, marian: bool = False) -> Path:
        """Return a copy of the good model that may be spoilt."""
        path = self.folder / name
        shutil.rmtree(path, ignore_errors=True)
        if marian:
            write_marian(path)
        else:
            shutil.copytree(self.good, path, ignore=shutil.ignore_patterns("checkpoints", "metrics*"))
        return path

    def peak(self, verb: str) -> float:
        """Return what a command takes for good files."""
        if verb not in self.peaks:
            if verb == "train":
                ended = self.run("train", self.pairs, "--out", self.folder / "again", "--fresh", *TRAIN)
                ended = (
                    ended if ended.code != 2 else self.run("train", self.pairs, "--out", self.folder / "new", *TRAIN)
                )
            elif verb == "evaluate":
                ended = self.run("evaluate", self.good, self.pairs)
            else:
                ended = self.run("translate", self.good, given=TEXT)
            if ended.code != 0:
                raise RuntimeError(f"heedful {verb} fails with good files: {ended.stderr[-400:]}")
            self.peaks[verb] = ended.peak
        return self.peaks[verb]

    def check(self, *arguments: str | Path, codes: tuple[int, ...] = (2,), says: str = "", **more: Any) -> Ended:  # noqa: ANN401
        """Run a command on a hostile file, and note what it did and what it must not do."""
        over = self.peak(str(arguments[0]))
        ended = self.run(*arguments, **more)
        self.outcomes.append(f"exit {ended.code}, +{max(0.0, ended.peak - over):.0f} MiB, {ended.seconds:.1f} s")
        self.broken += ended.faults()
        if ended.code is not None and ended.code not in codes:
            self.broken.append(f"exit code {ended.code}, not {' or '.join(map(str, codes))}")
        if ended.peak > over + MEMORY:
            self.broken.append(f"{ended.peak:.0f} MiB, {over:.0f} with a good file")
        if says and ended.code is not None and says.lower() not in ended.stderr.lower():
            self.broken.append(f"the message does not name {says!r}: {ended.stderr.strip()[-200:]!r}")
        return ended


def signed(
    path: Path, files: Mapping[str, bytes] | None = None, change: Callable[[dict[str, Any]], None] | None = None
) -> None:
    """Write files of a model folder with their checksums, as somebody would who made the folder on purpose.

    The checksum of `config.json` itself is left out, as in folders of older versions.
    """
    head = json.loads((path / "config.json").read_text(encoding="utf-8"))
    for name, content in (files or {}).items():
        (path / name).write_bytes(content)
        head["files"][name] = {"bytes": len(content), "sha256": sha256(content).hexdigest()}
    if change is not None:
        change(head)
    for key in set(head) - {"format", "heedful", "config", "notes", "files"}:
        del head[key]
    (path / "config.json").write_text(json.dumps(head), encoding="utf-8")


def tokenizer_of(path: Path) -> tuple[str, dict[str, Any]]:
    """Return the name and the content of a tokenizer file of a folder."""
    name = next(x for x in ("tokenizer.json", "source.tokenizer.json") if (path / x).exists())
    return name, json.loads((path / name).read_text(encoding="utf-8"))


def panicking(model: Path, folder: Path) -> Path:
    """Write a copy of a model whose tokenizer panics at texts of more than 300 tokens."""
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(model, folder, ignore=shutil.ignore_patterns("checkpoints"))
    name, content = tokenizer_of(folder)
    content["truncation"] = {"direction": "Right", "max_length": 300, "strategy": "LongestFirst", "stride": 400}
    signed(folder, {name: json.dumps(content).encode()})
    return folder


def write_marian(path: Path, **settings: object) -> None:
    """Write a Marian folder without weights."""
    import sentencepiece

    path.mkdir(parents=True)
    texts = [SENTENCE] * 20
    made = io.BytesIO()
    options: dict[str, Any] = {"vocab_size": 40, "hard_vocab_limit": False, "minloglevel": 3}
    sentencepiece.SentencePieceTrainer.Train(sentence_iterator=iter(texts), model_writer=made, **options)
    processor = sentencepiece.SentencePieceProcessor(model_proto=made.getvalue())
    tokens = ["</s>", "<unk>", *(processor.IdToPiece(i) for i in range(3, len(processor))), "<pad>"]
    for name in ("source.spm", "target.spm"):
        (path / name).write_bytes(made.getvalue())
    (path / "vocab.json").write_text(json.dumps({token: i for i, token in enumerate(tokens)}), encoding="utf-8")
    config: dict[str, object] = {
        "model_type": "marian",
        "vocab_size": len(tokens),
        "decoder_vocab_size": len(tokens),
        "d_model": 16,
        "encoder_layers": 1,
        "decoder_layers": 1,
        "encoder_attention_heads": 2,
        "decoder_attention_heads": 2,
        "encoder_ffn_dim": 16,
        "decoder_ffn_dim": 16,
        "max_position_embeddings": 64,
        "scale_embedding": True,
        "activation_function": "swish",
        "eos_token_id": 0,
        "pad_token_id": len(tokens) - 1,
        "decoder_start_token_id": len(tokens) - 1,
    }
    (path / "config.json").write_text(json.dumps({**config, **settings}), encoding="utf-8")


def zeros_gz(path: Path, size: int) -> None:
    """Write zeros that gzip makes a thousand times smaller: one piece, many times."""
    piece = gzip.compress(bytes(100_000_000), 6)
    with path.open("wb") as file:
        for _ in range(size // 100_000_000):
            file.write(piece)


# ------------------------------------------------------------------------------------------------ attacks


def sparse_config(files: Files) -> None:
    """A config.json of 6 GB."""
    path = files.copy("sparse-config")
    os.truncate(path / "config.json", LARGE)
    files.check("translate", path, given=TEXT, says="config.json")


def sparse_readout(files: Files) -> None:
    """A readout.json of 6 GB."""
    path = files.copy("sparse-readout")
    (path / "readout.json").write_text("{", encoding="utf-8")
    os.truncate(path / "readout.json", LARGE)
    files.check("translate", path, given=TEXT, codes=(0, 2), says="readout.json")


def sparse_tokenizer(files: Files) -> None:
    """A tokenizer.json of 6 GB; once as large as config.json says, once larger."""
    path = files.copy("sparse-tokenizer")
    name, _ = tokenizer_of(path)
    os.truncate(path / name, LARGE)
    files.check("translate", path, given=TEXT, says=name)
    signed(path, change=lambda head: head["files"][name].update(bytes=LARGE))
    files.check("translate", path, given=TEXT, says=name)


def sparse_weights(files: Files) -> None:
    """Weights of 6 GB; once as large as config.json says, once larger."""
    path = files.copy("sparse-weights")
    os.truncate(path / "model.safetensors", LARGE)
    files.check("translate", path, given=TEXT, says="model.safetensors")
    signed(path, change=lambda head: head["files"]["model.safetensors"].update(bytes=LARGE))
    files.check("translate", path, given=TEXT, says="model.safetensors")


def gzip_train(files: Files) -> None:
    """A .gz of 10 MB that holds 10 GB of zeros, to train on."""
    bomb = files.folder / "zeros.tsv.gz"
    zeros_gz(bomb, 10**10)
    files.check("train", bomb, "--out", files.folder / "gzip-train", *TRAIN, says="zeros.tsv.gz")


def gzip_evaluate(files: Files) -> None:
    """A .gz of 10 MB that holds 10 GB of zeros, as a test set."""
    bomb = files.folder / "zeros.tsv.gz"
    zeros_gz(bomb, 10**10)
    files.check("evaluate", files.good, bomb, says="zeros.tsv.gz")


def marian_zip(files: Files) -> None:
    """A Marian folder whose pytorch_model.bin is a zip of 3 MB that holds 3 GB."""
    import torch

    path = files.copy("marian-zip", marian=True)
    plain = io.BytesIO()
    torch.save({"a": torch.zeros(4)}, plain)
    with zipfile.ZipFile(plain) as source, zipfile.ZipFile(path / "pytorch_model.bin", "w") as bomb:
        for name in source.namelist():
            large = name.endswith("data/0")
            info = zipfile.ZipInfo(name)
            info.compress_type = zipfile.ZIP_DEFLATED if large else zipfile.ZIP_STORED
            with bomb.open(info, "w", force_zip64=True) as file:
                if not large:
                    file.write(source.read(name))
                for _ in range(3000 if large else 0):
                    file.write(bytes(1_000_000))
    files.check("translate", path, given=TEXT, says="pytorch_model.bin")


def marian_pad(files: Files) -> None:
    """A Marian folder whose pad_token_id is out of range."""
    for number in (10**6, -1, 10**30):
        path = files.folder / "marian-pad"
        shutil.rmtree(path, ignore_errors=True)
        write_marian(path, pad_token_id=number, decoder_start_token_id=number)
        files.check("translate", path, given=TEXT, says="pad_token_id" if number != 10**30 else "")


def tokenizer_padding(files: Files) -> None:
    """A tokenizer that pads to 2·10⁹ tokens."""
    path = files.copy("tokenizer-padding")
    name, content = tokenizer_of(path)
    content["padding"] = {
        "strategy": {"Fixed": 2_000_000_000},
        "direction": "Right",
        "pad_to_multiple_of": None,
        "pad_id": 0,
        "pad_type_id": 0,
        "pad_token": "<pad>",
    }
    signed(path, {name: json.dumps(content).encode()})
    files.check("translate", path, given=TEXT, says=name)


def tokenizer_growth(files: Files) -> None:
    """A tokenizer whose normaliser makes a text 16⁹ times as long."""
    path = files.copy("tokenizer-growth")
    name, content = tokenizer_of(path)
    grow = [{"type": "Replace", "pattern": {"String": "a"}, "content": "a" * 16} for _ in range(9)]
    content["normalizer"] = {"type": "Sequence", "normalizers": grow}
    signed(path, {name: json.dumps(content).encode()})
    files.check("translate", path, given=TEXT, says=name)


def tokenizer_regex(files: Files) -> None:
    """A tokenizer whose pattern takes for ever."""
    path = files.copy("tokenizer-regex")
    name, content = tokenizer_of(path)
    pattern = {"Regex": r"(?:(a|aa|a*)*(a|aa|a*)*)*b\1"}
    content["pre_tokenizer"] = {"type": "Split", "pattern": pattern, "behavior": "Isolated", "invert": False}
    signed(path, {name: json.dumps(content).encode()})
    files.check("translate", path, given=b"a" * 5000 + b"\n", says=name)


def tokenizer_panic(files: Files) -> None:
    """A tokenizer that panics at long texts."""
    path = panicking(files.good, files.folder / "panicking")
    files.check("translate", path, "--no-split", given=b"a dog " * 2000 + b"\n")


def nan_weights(files: Files) -> None:
    """Weights that are NaN or infinite, translated greedily and by a beam."""
    import safetensors.torch
    import torch

    for value in (float("nan"), float("inf")):
        path = files.copy("nan-weights")
        tensors = safetensors.torch.load((path / "model.safetensors").read_bytes())
        name, weight = next((k, t) for k, t in sorted(tensors.items()) if t.is_floating_point())
        tensors[name] = weight.clone().reshape(-1).index_fill(0, torch.tensor([0]), value).reshape(weight.shape)
        signed(path, {"model.safetensors": safetensors.torch.save(tensors)})
        for options in ((), ("--beam", "4")):
            files.check("translate", path, *options, given=TEXT, says=name)


def config_digit(files: Files) -> None:
    """One changed digit in config.json: 4 heads become 2."""
    path = files.copy("config-digit")
    text = (path / "config.json").read_text(encoding="utf-8")
    changed = text.replace('"heads": 4', '"heads": 2')
    if changed == text:
        raise RuntimeError("config.json does not say 4 heads")
    (path / "config.json").write_text(changed, encoding="utf-8")
    files.check("translate", path, given=TEXT, says="config.json")


def newer_checkpoint(files: Files) -> None:
    """The newest checkpoint has a format of the future: no older one is used in silence."""
    out = files.folder / "newer"
    shutil.rmtree(out, ignore_errors=True)
    shutil.copytree(files.good, out)
    checkpoints = sorted(p for p in (out / "checkpoints").iterdir() if p.name.isdecimal())
    config = checkpoints[-1] / "config.json"
    head = json.loads(config.read_text(encoding="utf-8"))
    newer = head["format"] + 40
    config.write_text(json.dumps({**head, "format": newer}), encoding="utf-8")
    steps = [*TRAIN, "--steps", "6"]
    ended = files.check("train", files.pairs, "--out", out, "--resume", *steps, says=str(newer))
    if str(head["format"]) not in ended.stderr:
        files.broken.append("the message does not name the format that can be read")


def data_cache(files: Files) -> None:
    """A changed byte in each of up to 6 files of the data cache: the model that is trained stays the same."""
    cache = {"HEEDFUL_CACHE": str(files.folder / "damaged-cache")}
    shutil.rmtree(cache["HEEDFUL_CACHE"], ignore_errors=True)
    good = files.folder / "cache-good"
    ended = files.run("train", files.pairs, "--out", good, *TRAIN, environment=cache)
    if ended.code != 0:
        raise RuntimeError(ended.stderr[-300:])
    right = (good / "model.safetensors").read_bytes()
    made = sorted(p for p in Path(cache["HEEDFUL_CACHE"]).rglob("*") if p.is_file() and p.stat().st_size > 64)
    for number, path in enumerate(made[:6]):
        content = path.read_bytes()
        middle = len(content) // 2
        path.write_bytes(content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1 :])
        out = files.folder / f"cache-{number}"
        files.check("train", files.pairs, "--out", out, *TRAIN, codes=(0,), environment=cache)
        if (out / "model.safetensors").exists() and (out / "model.safetensors").read_bytes() != right:
            files.broken.append(f"{path.name}: another model, exit code 0")


def hub_revision(files: Files) -> None:
    """hf:NAME@REVISION whose revision leads out of the hub's cache."""
    home = files.folder / "hub"
    outside = files.folder / "outside"
    shutil.rmtree(outside, ignore_errors=True)
    write_marian(outside)
    (home / "hub" / "models--a--b" / "snapshots").mkdir(parents=True, exist_ok=True)
    environment = {"HF_HOME": str(home), "HF_HUB_OFFLINE": "1"}
    for revision in ("../../../../outside", "..", "a/../../../../../outside"):
        ended = files.check("translate", f"hf:a/b@{revision}", given=TEXT, environment=environment)
        if str(outside) in ended.stderr or "safetensors" in ended.stderr:
            files.broken.append("a folder outside the cache was opened")


def odd_folder(files: Files) -> None:
    """A model folder whose name cannot be decoded and has an escape sequence in it."""
    path = files.copy(os.fsdecode(b"m\xff\x1b[31m"))
    files.check("translate", path, given=TEXT, codes=(0,))
    (path / "model.safetensors").write_bytes(b"")
    files.check("translate", path, given=TEXT)


def long_line(files: Files) -> None:
    """A line of 11 MB to translate."""
    files.check("translate", files.good, given=b"a small dog " * 920_000 + b"\n", says="line 1")


def long_map(files: Files) -> None:
    """--no-split --show for a long text with a model whose max_length is a million."""
    path = files.copy("long-map")

    def longer(head: dict[str, Any]) -> None:
        head["config"]["text"]["max_length"] = 1_000_000

    signed(path, change=longer)
    text = b"a small dog " * 40_000 + b"\n"
    files.check("translate", path, "--no-split", "--show", given=text, says="480,000 characters")
    text = b"a small dog " * 2_000 + b"\n"  # fewer characters than are refused: translated, without a map
    files.check("translate", path, "--no-split", "--show", given=text, codes=(0,), says="source tokens")


def escapes(files: Files) -> None:
    """Escape sequences in data, file names and notes of a model: none reaches stderr raw."""
    odd = files.folder / "pairs\x1b]0;owned\x07.tsv"
    odd.write_bytes(b"a\x1b[2J\tb\tc\td\te\n" * 5 + b"one column \x1b]0;owned\x07\n")
    files.check("train", odd, "--out", files.folder / "escapes", *TRAIN)
    files.check("evaluate", files.good, odd, codes=(0, 1, 2))
    path = files.copy("notes\x1b[31m")
    signed(path, change=lambda head: head["notes"].update({"note\x1b[2J": "\x1b]0;owned\x07"}))
    ended = files.run("info", path)
    files.broken += ended.faults()
    if b"\x1b" in ended.stdout:
        files.broken.append("info prints a raw escape sequence")


ATTACKS: Mapping[str, Callable[[Files], None]] = {
    function.__name__.replace("_", "-"): function
    for function in (
        *(sparse_config, sparse_readout, sparse_tokenizer, sparse_weights, gzip_train, gzip_evaluate, marian_zip),
        *(marian_pad, tokenizer_padding, tokenizer_growth, tokenizer_regex, tokenizer_panic, nan_weights),
        *(config_digit, newer_checkpoint, data_cache, hub_revision, odd_folder, long_line, long_map, escapes),
    )
}
_FILES: dict[Path, Files] = {}


def run(name: str, code: Path, folder: Path) -> tuple[str, list[str]]:
    """Run one attack; return what commands did, and what they must not do."""
    if folder not in _FILES:
        _FILES[folder] = Files(code, folder / "files")
    files = _FILES[folder]
    files.outcomes, files.broken = [], []
    try:
        ATTACKS[name](files)
    except (OSError, RuntimeError) as error:
        files.broken.append(f"{type(error).__name__}: {error}")
    return "; ".join(files.outcomes), list(dict.fromkeys(files.broken))

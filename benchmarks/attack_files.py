"""Files from strangers, damaged in every way: each is refused in words, or read as if nothing had happened.

python benchmarks/attack_files.py --mutations 5000 --kinds models caches --jobs 8
python benchmarks/attack_files.py --kinds traces --only 17        one mutation again, with its traceback

| kind | what is damaged | what is done with it |
|---|---|---|
| models | a file of a model folder: heedful's own of four kinds, a Marian folder, a checkpoint | opened; translates |
| students | a file of a folder in Marian's own files: a student with its shortlist, an OPUS-MT `.npz` | as models |
| ctranslate2 | a file of a CTranslate2 folder: our export, and one as others write it, in int8 | opened; translates |
| argos | an Argos package, or a file in it, packed again | opened; translates |
| caches | a file of the cache of prepared pairs | the pairs, vocabularies and tokens are prepared again |
| pairs | a file of sentence pairs: TSV, CSV, JSON lines, gzip | read and cleaned |
| links | a file of word links | read with its pairs |
| gold | a file of gold links | read |
| readouts | `readout.json` in a model folder | opened; translates, and reads its weights |
| xlit | a folder of AI4Bharat's transliterators: weights as a pickle, and letters | opened; transliterates |
| traces | a trace, as `heedful see` writes it | read, and its weights between words worked out |

A mutation flips bits, cuts, grows (to 6 GB, sparse), overwrites, swaps files, puts a folder, a pipe, a device or a link
in a file's place, or edits JSON: extreme numbers, other types, deep nesting, keys twice or missing. Half of those of
model folders are sealed, as somebody would who tampers: all checksums are made to fit, so that the damage gets further.

What is right: a `HeedfulError` that exits with code 2; or the same result as without damage; or, where no checksum
tells, another result. A cache always gives the same result. Anything else is a failure: another exception, more than
`--memory` MiB, more than `--seconds`, the end of the process.

Each process loads torch once and forks; a child works through many mutations, with a limit on its address space, and is
replaced when it hangs or dies. Exit code 1 if anything failed.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import importlib.util
import json
import os
import random
import resource
import select
import shutil
import signal
import sys
import tempfile
import time
import traceback
import zipfile
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))
for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "RAYON_NUM_THREADS"):
    os.environ[name] = "1"
os.environ["TOKENIZERS_PARALLELISM"] = "false"

WORDS = ("the", "old", "cat", "sees", "a", "small", "dog", "near", "my", "house", "and", "eats", "green", "apples")
SPARSE = (65_000_001, 200_000_000, 2**31, 6 * 10**9)
VALUES: tuple[Any, ...] = (
    *(None, True, False, 0, -1, 1, 2, 3, 7, 255, 256, 2**31, 2**53, 2**63, -(2**63), 10**30, 10**4200),
    *(0.5, -0.0, 1e-320, 1e308, float("inf"), float("-inf"), float("nan")),
    *("", "x", "\0", "\ud800", "../../etc/passwd", "A" * 100_000, "é" * 50, "\x1b[2J", "NaN"),
    *([], {}, [[]], [None] * 1000, {"": None}, list(range(1000)), {"a": {"b": {"c": [1]}}}),
)
Outcome = tuple[str, object]  # "read" and what was read, to be compared; or another word, such as "refused"


@dataclass
class Case:
    """A mutation: where the damaged files lie, whether other results are right, and what was done, in words."""

    folder: Path
    free: bool = False
    said: list[str] = field(default_factory=list)


class Mutator:
    """Damages files, by chance."""

    def __init__(self, pick: random.Random) -> None:
        self.pick = pick

    def damage(self, path: Path, others: Sequence[Path]) -> str:
        """Damage one file; `others` are those that it may be swapped with. Return what was done."""
        ways: list[Callable[[Path, Sequence[Path]], str]] = [*[self.edit_bytes] * 6, *[self.replace] * 2, self.swap]
        if path.suffix == ".json" and path.is_file():
            ways += [self.edit_json] * 9
        elif path.suffix in (".tsv", ".csv", ".jsonl", ".txt", ".links", ".gold", ".yml"):
            ways += [self.edit_lines] * 9
        way = self.pick.choice(ways)
        return f"{way.__name__} {path.name}: {way(path, others)}"

    def edit_bytes(self, path: Path, others: Sequence[Path]) -> str:
        """Change some bytes, or how many there are."""
        pick, content = self.pick, bytearray(path.read_bytes())
        size = len(content)
        at = pick.randrange(size + 1)
        some = pick.choice([1, 1, 2, 8, 100, 5000])
        noise = pick.choice([bytes(some), b"\xff" * some, pick.randbytes(some), b"\n" * some, b"[" * some, b'"' * some])
        match pick.randrange(8):
            case 0 | 1 | 2:
                places = [pick.randrange(size) for _ in range(pick.choice([1, 1, 1, 2, 8]))] if size else []
                for place in places:
                    content[place] ^= 1 << pick.randrange(8)
                done = f"bits flipped at {places}"
            case 3:
                del content[at:]
                done = f"cut at {at}"
            case 4:
                content[at : at + some] = noise[: max(0, size - at)]
                done = f"{some} bytes overwritten at {at}"
            case 5:
                content[at:at] = noise
                done = f"{some} bytes put in at {at}"
            case 6:
                del content[at : at + some]
                done = f"{some} bytes taken out at {at}"
            case _:
                content[at:at] = content[at : at + some]
                done = f"{some} bytes twice at {at}"
        path.write_bytes(content)
        return done

    def replace(self, path: Path, others: Sequence[Path]) -> str:
        """Put something else in the file's place."""
        what = self.pick.choice(
            [
                "sparse",
                "sparse",
                "grown",
                "empty",
                "gone",
                "folder",
                "pipe",
                "zero",
                "null",
                "loop",
                "dangling",
                "mode",
                "gzip",
            ]
        )
        if what == "sparse":
            with path.open("r+b") as file:
                size = self.pick.choice(SPARSE)
                file.truncate(size)
            return f"sparse, {size} bytes"
        if what == "grown":
            with path.open("r+b") as file:
                file.seek(0, os.SEEK_END)
                file.truncate(file.tell() + self.pick.choice([1, 4096, 3_000_000]))
            return what
        if what == "empty":
            path.write_bytes(b"")
            return what
        if what == "mode":
            path.chmod(0)
            return what
        if what == "gzip":
            path.write_bytes(gzip.compress(path.read_bytes()))
            return what
        path.unlink()
        if what == "folder":
            path.mkdir()
        elif what == "pipe":
            os.mkfifo(path)
        elif what in ("zero", "null"):
            path.symlink_to(f"/dev/{what}")
        elif what == "loop":
            path.symlink_to(path.name)
        elif what == "dangling":
            path.symlink_to("nowhere")
        return what

    def swap(self, path: Path, others: Sequence[Path]) -> str:
        """Put another file's content in this one, and this one's in the other."""
        if not (candidates := [other for other in others if other != path and other.is_file()]):
            return self.edit_bytes(path, others)
        other = self.pick.choice(candidates)
        mine, theirs = path.read_bytes(), other.read_bytes()
        path.write_bytes(theirs)
        other.write_bytes(mine)
        return f"with {other.name}"

    def edit_json(self, path: Path, others: Sequence[Path]) -> str:
        """Change one value of a JSON file, or its keys."""
        pick = self.pick
        content = path.read_text(encoding="utf-8")
        head, separator, body = content.partition("\n") if not content.startswith(("{", "[")) else ("", "", content)
        try:
            found = json.loads(body)
        except ValueError:
            return self.edit_bytes(path, others)
        places = list(_places(found))
        place = (
            pick.choice([one for one in places if len(one) <= 2] or places)
            if pick.random() < 0.4
            else pick.choice(places)
        )
        how = pick.choice(["value"] * 6 + ["gone", "deep", "twice", "more", "number", "number", "root"])
        value = pick.choice(VALUES)
        if how == "root" or not place:
            written = json.dumps(value)
            how, place = "root", ()
        else:
            parent = found
            for key in place[:-1]:
                parent = parent[key]
            key = place[-1]
            if how == "gone":
                del parent[key]
            elif how == "more" and isinstance(parent, dict):
                parent[pick.choice(["x", "", "__proto__", "format", "type", "\ud800"])] = value
            elif how == "number" and isinstance(parent[key], int | float):
                parent[key] = pick.choice([parent[key] + 1, parent[key] - 1, -parent[key], parent[key] * 2, 10**9])
            elif how in ("deep", "twice"):
                parent[key] = "@@"
            else:
                parent[key] = value
            written = json.dumps(found)
            if how == "deep":
                depth = pick.choice([50, 150, 900, 100_000])
                written = written.replace('"@@"', "[" * depth + "]" * depth, 1)
            elif how == "twice":
                written = written.replace('"@@"', f'{json.dumps(value)}, "x": 1, {json.dumps(str(key))}: 3', 1)
        path.write_text(head + separator + written, encoding="utf-8")
        return f"{how} at {'.'.join(map(str, place))}: {value!r:.40}"

    def edit_lines(self, path: Path, others: Sequence[Path]) -> str:
        """Change a line of a text file, or how many there are."""
        pick = self.pick
        lines = path.read_text(encoding="utf-8").split("\n")
        at = pick.randrange(len(lines))
        strange = [
            "",
            "\r",
            "\0",
            "\ufeff",
            "\u2028",
            "\t",
            "\t" * 500,
            '"',
            '"' * 501,
            "0-0",
            "999999999-1",
            "1p1",
            "9" * 5000,
        ]
        strange += [
            "x" * 200_000,
            "-1-0",
            "1 1 1 S",
            "[" * 5000,
            '{"source": 1}',
            "A\u0300" * 3000,
            "👩\u200d" * 2000,
            "\x1b[2J",
        ]
        word = pick.choice(strange)
        match pick.randrange(6):
            case 0:
                lines[at] = word
            case 1:
                lines[at] += word
            case 2:
                del lines[at]
            case 3:
                lines[at:at] = [word] * pick.choice([1, 2, 50])
            case 4:
                lines[at:at] = lines[at : at + 1]
            case _:
                parts = lines[at].split(" ")
                parts[pick.randrange(len(parts))] = word
                lines[at] = " ".join(parts)
        path.write_text("\n".join(lines), encoding="utf-8")
        return f"line {at + 1}, {word!r:.20}"


def _places(found: object, at: tuple[Any, ...] = ()) -> Iterable[tuple[Any, ...]]:
    """Yield the paths to some values of JSON: all but the many of long lists."""
    yield at
    items: Iterable[tuple[Any, object]] = ()
    if isinstance(found, dict):
        items = list(found.items())[:200]
    elif isinstance(found, list):
        items = [*list(enumerate(found))[:6], *list(enumerate(found))[-1:]]
    for key, value in items:
        yield from _places(value, (*at, key))


class Kind:
    """Something to damage: made once, copied for each mutation, and read."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self.make()

    def make(self) -> None:
        """Make what is damaged."""

    def spoil(self, case: Case, pick: random.Random) -> None:
        """Copy it into the folder of a case, and damage it."""
        shutil.copytree(self.folder, case.folder)
        files = sorted(path for path in case.folder.rglob("*") if path.is_file())
        case.said.append(Mutator(pick).damage(pick.choice(files), files))
        case.free = True

    def read(self, case: Case) -> Outcome:
        """Read it."""
        raise NotImplementedError

    @cached_property
    def whole(self) -> Outcome:
        """What is read without damage."""
        return self.read(Case(self.folder))

    def right(self, case: Case, outcome: Outcome) -> str:
        """Return the word for an outcome in the table; nothing for one that is wrong."""
        if outcome[0] != "read":
            return outcome[0]
        if outcome == self.whole:
            return "same"
        return "other" if case.free else ""


def pairs_of_words(count: int, seed: int = 0) -> list[tuple[str, str]]:
    """Return sentences of few words, and the same in capitals."""
    pick = random.Random(seed)
    sentences = [" ".join(pick.choices(WORDS, k=pick.randint(2, 6))) for _ in range(count)]
    return [(sentence, sentence.upper()) for sentence in sentences]


def digest(*parts: object) -> str:
    """Return a checksum of anything that can be shown."""
    return hashlib.sha256(repr(parts).encode("utf-8", "backslashreplace")).hexdigest()


class Models(Kind):
    """Model folders: heedful's own, Marian's, and a run with checkpoints."""

    def make(self) -> None:
        """Write models with random weights, and train one for a few steps, for its checkpoints."""
        import torch

        import heedful
        from heedful.config import Config
        from heedful.interop import write_marian
        from heedful.interop.folder import ModelParts, write_model
        from heedful.models import build
        from heedful.text import Codec

        texts = [side for pair in pairs_of_words(120) for side in pair]
        models: dict[str, tuple[dict[str, object], dict[str, object]]] = {
            "rnn": ({"family": "rnn", "width": 8, "embedding": 6}, {"kind": "bpe", "size": 60}),
            "transformer": (
                {"family": "transformer", "width": 8, "heads": 4, "inner": 12, "layers": 2},
                {"kind": "unigram", "size": 60, "joint": True},
            ),
        }
        if importlib.util.find_spec("sentencepiece") is not None:
            post = {"family": "transformer", "width": 8, "heads": 2, "inner": 12, "layers": 1}
            post |= {"norm": "post", "tied": "all", "bias": True}
            models["pieces"] = (post, {"kind": "sentencepiece", "size": 60, "joint": True})
        else:
            print("sentencepiece is not installed: without Marian folders", file=sys.stderr)
        for name, (model, text) in models.items():
            config = Config.build({"model": model, "text": {**text, "max_length": 40}})
            codecs = [Codec.train(texts, config.text)] * 2
            if not config.text.joint:
                codecs = [Codec.train(texts[side::2], config.text) for side in (0, 1)]
            torch.manual_seed(1)
            network = build(config.model, len(codecs[0]), len(codecs[1])).eval()
            parts = ModelParts(config, network, codecs[0], codecs[1])
            write_model(self.folder / name, parts)
            if name == "pieces":
                write_marian(self.folder / "marian", parts)
                shutil.copytree(self.folder / "marian", self.folder / "pickle")
                from safetensors.torch import load_file

                weights = load_file(self.folder / "pickle" / "model.safetensors")
                torch.save(weights, self.folder / "pickle" / "pytorch_model.bin")
                (self.folder / "pickle" / "model.safetensors").unlink()
        training: dict[str, object] = {
            "steps": 4,
            "checkpoint_every": 2,
            "keep": 2,
            "valid_every": 2,
            "warmup": 1,
            "batch_sentences": 16,
        }
        training |= {"threads": 1, "device": "cpu", "ema": 0.9, "average": 2, "precision": "fp32"}
        settings: dict[str, dict[str, object]] = {
            "text": {"kind": "word"},
            "model": {"width": 8, "embedding": 6},
            "training": training,
        }
        heedful.train(pairs_of_words(60), self.folder / "run", settings=settings, verbose=False)

    def spoil(self, case: Case, pick: random.Random) -> None:
        """Copy one of the models, and damage it; half of the time, make the checksums fit."""
        name = pick.choice(sorted(path.name for path in self.folder.iterdir()))
        shutil.copytree(self.folder / name, case.folder / name)
        folder = case.folder / name
        if name == "run":
            folder = max((folder / "checkpoints").iterdir())
        files = sorted(path for path in folder.iterdir() if path.is_file())
        case.said.append(f"{name}: {Mutator(pick).damage(pick.choice(files), files)}")
        if name in ("marian", "pickle", "xlit"):
            case.free = True  # it has no checksums
        elif pick.random() < 0.5:
            case.free = seal(folder)
            case.said.append("sealed")
        else:
            case.free = _without_checksum(folder)

    def read(self, case: Case) -> Outcome:
        """Open the model and translate with it, or find the newest checkpoint."""
        if case.folder == self.folder:
            return "read", tuple(self._each(path) for path in sorted(self.folder.iterdir()))
        path = next(case.folder.iterdir())
        if path.name == "run":
            from heedful.training.checkpointing import newest

            _, damaged = newest(path)
            if damaged:
                return "passed over", None
        return "read", self._each(path)

    def right(self, case: Case, outcome: Outcome) -> str:
        """Compare with the same model without damage."""
        if outcome[0] == "read":
            names = sorted(path.name for path in self.folder.iterdir())
            whole = dict(zip(names, self.whole[1], strict=True))  # type: ignore[call-overload]
            same = outcome[1] == whole[next(case.folder.iterdir()).name]
            return "same" if same else "other" if case.free else ""
        return outcome[0]

    def _each(self, path: Path) -> str:
        if path.name == "run":
            from heedful.training.checkpointing import newest

            found, _ = newest(path)
            if found is None:
                return ""
            tensors = [found.parts.model.state_dict(), found.optimizer, found.best, found.average, *found.recent]
            numbers = [[(k, t.tolist()) for k, t in sorted((one or {}).items())] for one in tensors]
            return digest(found.position, found.run, found.parts.config, numbers)
        import heedful

        translator = heedful.load(path, "cpu")
        done = translator.translate("the old cat sees a small dog.")
        return digest(translator.config, done.text, done.score, done.trace.words())


class Students(Models):
    """Folders of Marian's own files: a student with 8 bits and a shortlist, and an .npz with lists of tokens."""

    def make(self) -> None:
        """Write them, as the tests do."""
        sys.path.insert(0, str(ROOT / "tests" / "interop"))
        import marian_files  # type: ignore[import-not-found]

        marian_files.student(self.folder / "student")
        marian_files.opus(self.folder / "opus")

    def spoil(self, case: Case, pick: random.Random) -> None:
        """Damage a file; of a .bin or a shortlist often in its head, where the sizes are."""
        name = pick.choice(("student", "student", "opus"))
        folder = case.folder / name
        shutil.copytree(self.folder / name, folder)
        files = sorted(path for path in folder.iterdir() if path.is_file())
        path, case.free = pick.choice(files), True
        if path.suffix in (".bin", ".npz") and pick.random() < 0.4:
            content, at = bytearray(path.read_bytes()), 0
            at = pick.randrange(0, min(len(content) - 8, 6000), 4)
            value = pick.choice((0, 1, 255, 2**16, 2**31 - 1, 2**31, 2**32 - 1, 2**40, 2**63, 2**64 - 1))
            content[at : at + 8] = value.to_bytes(8, "little")
            path.write_bytes(content)
            case.said.append(f"{name}: {value} at {at} of {path.name}")
            return
        case.said.append(f"{name}: {Mutator(pick).damage(path, files)}")


class Converted(Models):
    """CTranslate2 folders: our own export, and one without what only heedful writes, in int8."""

    def make(self) -> None:
        """Write a model with random weights in both ways."""
        import torch

        from heedful.config import Config
        from heedful.interop import write_ctranslate2
        from heedful.interop.folder import ModelParts
        from heedful.models import build
        from heedful.text import Codec

        texts = [side for pair in pairs_of_words(120) for side in pair]
        model = {"family": "transformer", "width": 8, "heads": 2, "inner": 12, "layers": 1, "norm": "post"}
        text = {"kind": "sentencepiece", "size": 60, "joint": True, "max_length": 40}
        config = Config.build({"model": {**model, "tied": "all", "bias": True}, "text": text})
        codec = Codec.train(texts, config.text)
        torch.manual_seed(1)
        parts = ModelParts(config, build(config.model, len(codec), len(codec)).eval(), codec, codec)
        write_ctranslate2(self.folder / "ours", parts)
        write_ctranslate2(self.folder / "others", parts, int8=True)
        (self.folder / "others" / "tokenizer.json").unlink()
        path = self.folder / "others" / "config.json"
        settings = json.loads(path.read_text(encoding="utf-8"))
        del settings["heedful"]
        path.write_text(json.dumps({**settings, "add_source_eos": True}), encoding="utf-8")

    def spoil(self, case: Case, pick: random.Random) -> None:
        """Copy one of the folders, and damage it."""
        name = pick.choice(sorted(path.name for path in self.folder.iterdir()))
        shutil.copytree(self.folder / name, case.folder / name)
        case.said.append(f"{name}: {self.damage(case.folder / name, pick)}")
        case.free = True

    def damage(self, folder: Path, pick: random.Random) -> str:
        """Damage a file of a folder: half of the time that of the weights, and of these half the time a header."""
        files = sorted(path for path in folder.rglob("*") if path.is_file())
        weights = next(path for path in files if path.name == "model.bin")
        if pick.random() < 0.25:
            content = bytearray(weights.read_bytes())
            ends = [place for place in range(1, len(content)) if content[place] == 0 and content[place - 1] in b"tsaer"]
            at = pick.choice(ends) + pick.randrange(1, 16)
            some = pick.choice([b"\xff", b"\0", b"\xff\xff\xff\x7f", b"\0\0\0\x80", pick.randbytes(2), b"\x09"])
            content[at : at + len(some)] = some
            weights.write_bytes(content)
            return f"header of model.bin: {some!r} at {at}"
        return Mutator(pick).damage(weights if pick.random() < 0.4 else pick.choice(files), files)


class Packages(Converted):
    """Argos packages."""

    def make(self) -> None:
        """Pack a CTranslate2 folder as Argos does."""
        self.inner = self.folder.with_name("unpacked")
        others = Converted(self.inner / "converted").folder / "others"
        root = self.inner / "translate-aa_bb"
        root.mkdir()
        others.rename(root / "model")
        for name in ("source.spm", "target.spm", "README.md"):
            (root / "model" / name).rename(root / name)
        (root / "source.spm").rename(root / "sentencepiece.model")
        (root / "target.spm").unlink()
        (root / "metadata.json").write_text('{"from_code": "aa", "to_code": "bb", "package_version": "1"}')
        shutil.rmtree(self.inner / "converted")
        pack(root, self.folder / "m.argosmodel")

    def spoil(self, case: Case, pick: random.Random) -> None:
        """Damage the package, or a file in it that is packed again."""
        case.folder.mkdir()
        package, case.free = case.folder / "m.argosmodel", True
        if pick.random() < 0.5:
            work = case.folder.with_name(f"{case.folder.name}.work")
            shutil.copytree(self.inner / "translate-aa_bb", work / "t")
            case.said.append(self.damage(work / "t", pick))
            pack(work / "t", package)
            shutil.rmtree(work)
            return
        shutil.copy(self.folder / "m.argosmodel", package)
        if pick.random() < 0.5:
            content = bytearray(package.read_bytes())
            at = len(content) - pick.randrange(1, 1200)  # in the list of files
            content[at] = pick.choice([0, 1, 255, content[at] ^ 1 << pick.randrange(8)])
            package.write_bytes(content)
            case.said.append(f"the list of files: byte {at}")
        else:
            case.said.append(Mutator(pick).damage(package, [package]))

    def read(self, case: Case) -> Outcome:
        """Open the package, which may be gone, and translate with it."""
        return super().read(case) if case.folder == self.folder else ("read", self._each(case.folder / "m.argosmodel"))


def pack(folder: Path, package: Path) -> None:
    """Write a folder as a zip file, with the plain files that can be read."""
    with zipfile.ZipFile(package, "w", zipfile.ZIP_DEFLATED) as archive:
        for path in sorted(folder.rglob("*")):
            if path.is_file() and not path.is_symlink() and path.stat().st_size < 10**9 and os.access(path, os.R_OK):
                archive.write(path, path.relative_to(folder.parent))


def seal(folder: Path) -> bool:
    """Make all checksums of a model folder fit; return whether that could be done."""
    from heedful.errors import ModelError
    from heedful.files import read_bytes
    from heedful.interop.folder import checksum

    try:
        path = folder / "config.json"
        head = json.loads(read_bytes(path, 10**6, "it"))
        for name, facts in head["files"].items():
            file = folder / name
            if not file.is_file() or os.stat(file).st_mode & 0o777 == 0 or file.is_symlink():
                continue
            facts["bytes"] = file.stat().st_size
            if file.stat().st_size < 10**8:
                facts["sha256"] = hashlib.sha256(file.read_bytes()).hexdigest()
        path.write_text(json.dumps({**head, "checksum": checksum(head)}), encoding="utf-8")
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError, ModelError):
        return False
    return True


def _without_checksum(folder: Path) -> bool:
    """Whether the damage took the checksum of the config away: then the folder is one of before."""
    from heedful.files import open_plain

    try:
        with open_plain(folder / "config.json") as file:
            return "checksum" not in json.loads(file.read(10**6))
    except (OSError, ValueError, TypeError, RecursionError):
        return False


class Caches(Kind):
    """The cache of prepared pairs: whatever happens to it, what is prepared is the same."""

    def make(self) -> None:
        """Write pairs and links, and prepare them."""
        pairs = pairs_of_words(300)
        self.pairs, self.links = self.folder / "pairs.tsv", self.folder / "pairs.links"
        self.pairs.write_text("".join(f"{x}\t{y}\n" for x, y in pairs), encoding="utf-8")
        lines = (" ".join(f"{i}-{i}" for i in range(len(x.split()))) for x, _ in pairs)
        self.links.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
        self.cache = self.folder / "cache"

    def spoil(self, case: Case, pick: random.Random) -> None:
        """Copy the cache, and damage a file in it."""
        _ = self.whole  # which fills it
        shutil.copytree(self.cache, case.folder)
        files = sorted(path for path in case.folder.rglob("*") if path.is_file() and path.parent != case.folder)
        near = pick.choice(files)
        case.said.append(Mutator(pick).damage(near, [path for path in files if path.parent == near.parent]))

    def read(self, case: Case) -> Outcome:
        """Prepare the pairs, as training does, with vocabularies and tokens."""
        import numpy as np

        from heedful.config import Config
        from heedful.data import PairFile
        from heedful.training.callbacks import Reporter
        from heedful.training.prepare import Inputs, learn_codecs, open_pairs, prepare

        class Listening(Reporter):
            def log(self, message: str) -> None:
                case.said.append(message)

        os.environ["HEEDFUL_CACHE"] = str(self.cache if case.folder == self.folder else case.folder)
        settings = {"text": {"size": 70, "regularise": 0.1}, "training": {"batch_sentences": 16}}
        config = Config.build(settings)
        inputs = Inputs((PairFile(str(self.pairs), links=str(self.links)),))
        found = open_pairs(inputs, config, Listening())
        codecs = learn_codecs(found, config, Listening())
        prepared = prepare(found, codecs, config, Listening())
        corpus, rows = prepared.corpus, np.arange(len(prepared.corpus))
        sides = [side.tolist() for epoch in (0, 1) for side in corpus.sides(rows, epoch)]
        links = [one.tolist() for one in corpus.token_links(rows) or ()]
        texts = [corpus.pair(row) for row in range(len(corpus))]
        return "read", digest(sides, links, texts, codecs[0].dump(), codecs[1].dump(), prepared.digest)

    def right(self, case: Case, outcome: Outcome) -> str:
        """The same, always; where something was made again, it was said."""
        if outcome != self.whole:
            return ""
        return "rebuilt" if any("discarded" in said for said in case.said) else "same"


class Pairs(Kind):
    """Files of sentence pairs."""

    def make(self) -> None:
        """Write the same pairs in each format."""
        pairs = pairs_of_words(40)
        tsv = "".join(f"{x}\t{y}\n" for x, y in pairs)
        (self.folder / "pairs.tsv").write_text(tsv, encoding="utf-8")
        (self.folder / "pairs.csv").write_text(
            "source,target\n" + "".join(f'"{x}",{y}\n' for x, y in pairs), encoding="utf-8"
        )
        lines = "".join(json.dumps({"source": x, "target": y}) + "\n" for x, y in pairs)
        (self.folder / "pairs.jsonl").write_text(lines, encoding="utf-8")
        (self.folder / "packed.tsv.gz").write_bytes(gzip.compress(tsv.encode()))

    def read(self, case: Case) -> Outcome:
        """Read and clean each file."""
        from heedful.config import DataConfig
        from heedful.data import PairFile
        from heedful.data.store import open_store

        os.environ["HEEDFUL_CACHE"] = str(case.folder.with_name(f"{case.folder.name}.cache"))
        found = []
        for path in sorted(self.folder.iterdir()):
            file = PairFile(str(case.folder / path.name))
            store, _ = open_store([file], DataConfig(), case.said.append, lambda *_: None)
            found.append([store.pair(row)[:2] for row in range(len(store))])
        return "read", digest(found)


class Links(Pairs):
    """Word links, given with pairs."""

    def make(self) -> None:
        """Write pairs and their links."""
        pairs = pairs_of_words(40)
        (self.folder / "pairs.tsv").write_text("".join(f"{x}\t{y}\n" for x, y in pairs), encoding="utf-8")
        lines = (" ".join(f"{i}-{i}" for i in range(len(x.split()))) for x, _ in pairs)
        (self.folder / "pairs.links").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")

    def read(self, case: Case) -> Outcome:
        """Read both."""
        import numpy as np

        from heedful.config import DataConfig
        from heedful.data import PairFile
        from heedful.data.store import open_store

        os.environ["HEEDFUL_CACHE"] = str(case.folder.with_name(f"{case.folder.name}.cache"))
        file = PairFile(str(case.folder / "pairs.tsv"), links=str(case.folder / "pairs.links"))
        store, _ = open_store([file], DataConfig(), case.said.append, lambda *_: None)
        return "read", digest([one.tolist() for one in store.links(np.arange(len(store)))])


class Gold(Kind):
    """Gold links, in both forms."""

    def make(self) -> None:
        """Write links of 40 sentence pairs."""
        self.lengths = [(len(x.split()), len(y.split())) for x, y in pairs_of_words(40)]
        lines = (" ".join(f"{i}{'-p'[i % 2]}{i}" for i in range(n)) for n, _ in self.lengths)
        (self.folder / "pharaoh.gold").write_text("\n".join(lines) + "\n", encoding="utf-8")
        links = [f"{row} {i} {i} {'SP'[i % 2]}" for row, (n, _) in enumerate(self.lengths, 1) for i in range(n)]
        (self.folder / "naacl.gold").write_text("\n".join(links) + "\n", encoding="utf-8")

    def read(self, case: Case) -> Outcome:
        """Read both files, strictly and leniently."""
        from heedful.alignment import read_gold
        from heedful.data import read_lines

        found = []
        for name in ("pharaoh.gold", "naacl.gold"):
            for lenient in (False, True):
                path = case.folder / name
                gold = read_gold(read_lines(path), self.lengths, name=str(path), lenient=lenient)
                found.append([sorted(links) for side in gold[:2] for links in side])
        return "read", digest(found)


class Readouts(Models):
    """`readout.json` in a model folder."""

    def make(self) -> None:
        """Write a small Transformer with a read-out."""
        import torch

        from heedful.config import Config
        from heedful.interop.folder import ModelParts, write_model
        from heedful.models import build
        from heedful.text import Codec
        from heedful.trace.readout import Readout

        model = {"family": "transformer", "width": 8, "heads": 2, "inner": 12, "layers": 2}
        config = Config.build({"model": model, "text": {"kind": "bpe", "size": 60, "joint": True, "max_length": 40}})
        codec = Codec.train([side for pair in pairs_of_words(120) for side in pair], config.text)
        torch.manual_seed(1)
        readout = Readout(2, (1, 2), step="next", norms=True, threshold=0.5, chosen="by chance")
        parts = ModelParts(config, build(config.model, len(codec), len(codec)).eval(), codec, codec, readout=readout)
        write_model(self.folder / "model", parts)

    def spoil(self, case: Case, pick: random.Random) -> None:
        """Copy the model, and damage its read-out."""
        shutil.copytree(self.folder / "model", case.folder / "model")
        path = case.folder / "model" / "readout.json"
        case.said.append(Mutator(pick).damage(path, [path]))
        case.free = True


class Transliterators(Models):
    """The folder of a transliterator as AI4Bharat has it: `hi_111_model.pth` and `hi_scripts.json`."""

    def make(self) -> None:
        """Write one with random weights."""
        import torch
        from torch import nn

        glyphs, width = [chr(code) for code in range(0x905, 0x93A)], 4
        parts = {
            "encoder.embedding": nn.Embedding(33, width),
            "encoder.enc_rnn": nn.LSTM(width, width, bidirectional=True),
            "decoder.embedding": nn.Embedding(7 + len(glyphs), width),
            "decoder.dec_rnn": nn.LSTM(3 * width, width, num_layers=2),
            "decoder.fc.0": nn.Linear(width, width),
            "decoder.fc.2": nn.Linear(width, 7 + len(glyphs)),
            "decoder.W1": nn.Linear(2 * width, width),
            "decoder.W2": nn.Linear(width, width),
            "decoder.V": nn.Linear(width, 1),
        }
        weights = {f"{name}.{key}": value for name, part in parts.items() for key, value in part.state_dict().items()}
        (self.folder / "xlit").mkdir()
        torch.save(weights, self.folder / "xlit" / "hi_111_model.pth")
        content = json.dumps({"LANGUAGE": "hindi", "glyphs": glyphs}, ensure_ascii=False)
        (self.folder / "xlit" / "hi_scripts.json").write_text(content, encoding="utf-8")


class Traces(Kind):
    """Traces, as they are written for `heedful see`."""

    def make(self) -> None:
        """Translate two sentences, and write what the model looked at."""
        import heedful
        from heedful.draw.views import write

        Readouts(self.folder.with_name("traced"))
        translator = heedful.load(self.folder.with_name("traced") / "model", "cpu")
        traces = [done.trace for done in translator.translate(["the old cat", "a small dog eats"])]
        write(self.folder / "one.json", traces[:1], names=["one"])
        write(self.folder / "two.json", traces, names=["one", "two"])

    def read(self, case: Case) -> Outcome:
        """Read both files, and work out the weights between words."""
        from heedful.draw.views import read_traces

        found = []
        for name in ("one.json", "two.json"):
            traces, names = read_traces(case.folder / name)
            for trace in traces:
                words = trace.words()
                maps = {place: weights.tolist() for place, weights in trace.maps().items()}
                found.append((None if words is None else words.tolist(), maps, trace.confidences()))
            found.append(tuple(names))  # type: ignore[arg-type]
        return "read", digest(found)


KINDS: dict[str, type[Kind]] = {
    "models": Models,
    "students": Students,
    "ctranslate2": Converted,
    "argos": Packages,
    "caches": Caches,
    "pairs": Pairs,
    "links": Links,
    "gold": Gold,
    "readouts": Readouts,
    "xlit": Transliterators,
    "traces": Traces,
}


@dataclass
class Result:
    """What became of one mutation."""

    number: int
    word: str
    failure: str = ""
    seconds: float = 0.0
    mib: float = 0.0
    said: str = ""


def one(kind: Kind, name: str, number: int, seed: int, folder: Path, show: bool = False) -> Result:
    """Damage, read, compare; what goes wrong with the benchmark itself is a failure, too."""
    from heedful.errors import HeedfulError, NotFiniteError

    case = Case(folder / f"{name}-{number}")
    before, begun = _peak(reset=True), time.monotonic()
    failure, word = "", ""
    try:
        kind.spoil(case, random.Random(f"{seed}-{name}-{number}"))
        begun = time.monotonic()
        try:
            outcome = kind.read(case)
        except HeedfulError as error:
            if show:
                print(f"{type(error).__name__}: {error}")
            outcome = ("refused", None)
            # Weights that are sane each, and overflow together, are found when they are used.
            if error.exit_code != 2 and not (case.free and isinstance(error, NotFiniteError)):
                failure = f"exit code {error.exit_code}: {error!s:.200}"
            str(error).encode("utf-8", "backslashreplace")
            if len(str(error)) > 2000:
                failure = f"a message of {len(str(error)):,} characters: {error!s:.100}"
        word = kind.right(case, outcome)
        failure = failure or ("" if word else "another result than without damage")
    except BaseException as error:
        if show:
            traceback.print_exc()
        frames = traceback.extract_tb(error.__traceback__)
        where = next((f"{Path(f.filename).name}:{f.lineno}" for f in reversed(frames) if "heedful" in f.filename), "")
        failure = f"{type(error).__name__} at {where}: {error!s:.160}"
    finally:
        seconds = time.monotonic() - begun
        _remove(case.folder)
        _remove(case.folder.with_name(f"{case.folder.name}.cache"))
    return Result(number, word, failure, seconds, _peak() - before, "; ".join(case.said[:3])[:300])


def _remove(folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)


def _peak(reset: bool = False) -> float:
    """Return the most memory that this process had since the last reset, in MiB."""
    try:
        if reset:
            Path("/proc/self/clear_refs").write_text("5")
        status = Path("/proc/self/status").read_text(encoding="ascii", errors="replace")
        return int(status.split("VmHWM:")[1].split()[0]) / 1024
    except (OSError, IndexError, ValueError):
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


@dataclass
class Child:
    """A process that works through mutations, as its parent sees it."""

    pid: int
    pipe: int
    left: list[int]
    since: float
    rest: bytes = b""


def start(kind: Kind, name: str, numbers: Sequence[int], options: argparse.Namespace, folder: Path) -> Child:
    """Fork a process that works through mutations, and writes a line for each."""
    reading, writing = os.pipe()
    sys.stdout.flush()
    pid = os.fork()
    if pid:
        os.close(writing)
        return Child(pid, reading, list(numbers), time.monotonic())
    code = 1
    try:
        os.close(reading)
        nothing = os.open(os.devnull, os.O_RDWR)
        for stream in (0, 1, 2):
            os.dup2(nothing, stream)
        size = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        most = size + int(options.memory * 2**20)
        resource.setrlimit(resource.RLIMIT_AS, (most, most))
        resource.setrlimit(resource.RLIMIT_FSIZE, (7 * 10**9, 7 * 10**9))
        with os.fdopen(writing, "w", encoding="utf-8") as pipe:
            for number in numbers:
                result = one(kind, name, number, options.seed, folder)
                pipe.write(json.dumps(vars(result)) + "\n")
                pipe.flush()
        code = 0
    finally:
        os._exit(code)


def attack(kind: Kind, name: str, options: argparse.Namespace, folder: Path) -> list[Result]:
    """Run all mutations of a kind in so many processes at once."""
    _ = kind.whole
    numbers = list(range(options.mutations))
    shares = [numbers[n :: options.jobs] for n in range(options.jobs)]
    children = [start(kind, name, share, options, folder) for share in shares if share]
    results: list[Result] = []
    while children:
        ready, _, _ = select.select([child.pipe for child in children], [], [], 0.5)
        for child in list(children):
            ended = False
            if child.pipe in ready:
                content = os.read(child.pipe, 1 << 16)
                ended = not content
                *lines, child.rest = (child.rest + content).split(b"\n")
                for line in lines:
                    result = Result(**json.loads(line))
                    child.left.remove(result.number)
                    child.since = time.monotonic()
                    results.append(result)
            late = not ended and child.left and time.monotonic() - child.since > options.seconds
            if not ended and not late:
                continue
            if late:
                os.kill(child.pid, signal.SIGKILL)
            status = os.waitpid(child.pid, 0)[1]
            os.close(child.pipe)
            children.remove(child)
            if child.left:
                number, *rest = child.left
                why = f"more than {options.seconds:.0f} s" if late else f"the process ended with {status}"
                results.append(Result(number, "", why, options.seconds if late else 0))
                _remove(folder / f"{name}-{number}")
                if rest:
                    children.append(start(kind, name, rest, options, folder))
    return results


COLUMNS = ("refused", "same", "other", "rebuilt", "passed over")


def table(rows: dict[str, list[Result]]) -> str:
    """Return what became of all mutations."""
    head = f"{'kind':<10}{'mutations':>10}" + "".join(f"{word:>13}" for word in COLUMNS)
    lines = [head + f"{'failures':>10}{'most MiB':>10}{'slowest s':>11}"]
    for name, results in rows.items():
        counts = Counter(result.word for result in results if not result.failure)
        failures = sum(bool(result.failure) for result in results)
        most, slowest = (max(getattr(r, what) for r in results) for what in ("mib", "seconds"))
        cells = "".join(f"{counts[word]:>13,}" for word in COLUMNS)
        lines.append(f"{name:<10}{len(results):>10,}{cells}{failures:>10,}{most:>10.0f}{slowest:>11.1f}")
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    """Damage files, print a table, and return 1 if anything failed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mutations", "--count", type=int, default=5000, help="of each kind (5000)")
    parser.add_argument("--kinds", nargs="+", choices=list(KINDS), default=list(KINDS), metavar="KIND")
    parser.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)), help="processes at once")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=30.0, help="that a mutation may take (30)")
    parser.add_argument("--memory", type=float, default=300.0, help="MiB that a mutation may take (300)")
    parser.add_argument("--only", type=int, help="one mutation, in this process, with its traceback")
    options = parser.parse_args(arguments)

    import torch

    from heedful import files

    torch.set_num_threads(1)
    files.PIPE_SECONDS = 0.1  # nobody will ever write to these pipes
    rows: dict[str, list[Result]] = {}
    with tempfile.TemporaryDirectory(prefix="heedful-attack-") as place:
        os.environ["HEEDFUL_CACHE"] = str(Path(place) / "cache")
        for name in options.kinds:
            kind = KINDS[name](Path(place) / "whole" / name)
            if options.only is not None:
                print(one(kind, name, options.only, options.seed, Path(place), show=True))
                continue
            rows[name] = attack(kind, name, options, Path(place))
            for result in sorted(rows[name], key=lambda r: r.number):
                if result.failure:
                    print(f"{name} {result.number}: {result.failure}  [{result.said}]", flush=True)
    if options.only is not None:
        return 0
    print(table(rows))
    failures = sum(bool(result.failure) for results in rows.values() for result in results)
    total = sum(map(len, rows.values()))
    print(f"{total:,} mutations, {failures:,} failures")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())

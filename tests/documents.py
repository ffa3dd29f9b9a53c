"""Runs the code of a document and holds what it prints, and the pictures it draws, to what the document shows.

All ```python blocks of a document run in order, in one namespace. A ```text block right after one is what it prints:
words, whole numbers and the layout exactly; numbers with a decimal point, and percentages, to one unit of their last
place and 1%, so that another machine's rounding passes. The code runs in an empty folder with `examples` and `recipes`
in it; what it writes to `pictures/` there are the pictures of the document, which lie in `docs/pictures`, their names
beginning with the document's.
"""

from __future__ import annotations

import contextlib
import io
import re
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path

__all__ = ["SHOWN_ELSEWHERE", "Block", "Document", "blocks", "check", "compare", "refresh", "run"]

ROOT = Path(__file__).parent.parent
SHOWN_ELSEWHERE = {"README.md"}  # it trains a model: what that prints depends on the machine, and a test reads the text
RELATIVE = 0.01

FENCE = "```"
NUMBER = re.compile(
    r"(?P<gap> *)(?<![\w.])(?P<number>[-+]?\d+(?:,\d{3})*(?P<places>\.\d+)?(?:e(?P<power>[-+]?\d+))?%?)"
)


@dataclass(frozen=True)
class Block:
    """A block of code and what the document says it prints. Lines count from 1; `end` is the line of the last fence."""

    line: int
    code: str
    end: int
    shown: tuple[str, ...] | None = None
    shown_line: int = 0


@dataclass(frozen=True)
class Document:
    """A document that was run: its blocks with what each printed, its pictures by name, and the names it defined."""

    path: Path
    printed: tuple[tuple[Block, str], ...]
    pictures: dict[str, str]
    names: dict[str, object]


def blocks(text: str) -> list[Block]:
    """Return the blocks of Python in a document, each with the output that follows it."""
    found: list[Block] = []
    lines = text.splitlines()
    at = 0
    while at < len(lines):
        opening = lines[at]
        at += 1
        if not opening.startswith(FENCE):
            continue
        end = next((n for n in range(at, len(lines)) if lines[n].rstrip() == FENCE), None)
        if end is None:
            raise ValueError(f"line {at}: the block is not closed")
        kind = opening.removeprefix(FENCE).strip()
        if kind == "python":
            found.append(Block(at, "\n".join(lines[at:end]) + "\n", end + 1))
        elif kind in ("text", "output") and found and not any(s.strip() for s in lines[found[-1].end : at - 1]):
            last = found[-1]
            found[-1] = Block(last.line, last.code, end + 1, tuple(lines[at:end]), at)
        at = end + 1
    return found


def run(path: Path) -> Document:
    """Run a document."""
    text = path.read_text(encoding="utf-8")
    names: dict[str, object] = {"__name__": "__document__"}
    printed = []
    with _workspace() as folder:
        for block in blocks(text):
            # As many empty lines before it as in the document: a traceback names the line there.
            code = compile("\n" * block.line + block.code, str(path), "exec")
            with contextlib.redirect_stdout(io.StringIO()) as out:
                exec(code, names)
            printed.append((block, out.getvalue()))
        pictures = {p.name: p.read_text(encoding="utf-8") for p in sorted((folder / "pictures").glob("*.svg"))}
    return Document(path, tuple(printed), pictures, names)


@contextlib.contextmanager
def _workspace() -> Iterator[Path]:
    """Go to a new folder with what documents use."""
    with tempfile.TemporaryDirectory() as name, contextlib.chdir(name):
        for shared in ("examples", "recipes"):
            Path(shared).symlink_to(ROOT / shared)
        Path("pictures").mkdir()
        yield Path(name)


def check(document: Document, pictures: Path) -> list[str]:
    """Return what a document shows wrongly, each with its line; its pictures should lie in the folder `pictures`."""
    wrong = []
    name = document.path.name
    for block, printed in document.printed:
        if document.path.name in SHOWN_ELSEWHERE and block.shown is None:
            continue
        if block.shown is None:
            if printed:
                wrong.append(
                    f"{name}, line {block.line}: this code prints {printed.splitlines()[0]!r}, "
                    f"but no ```text block follows it: make docs"
                )
            continue
        difference = compare(block.shown, printed.splitlines())
        if difference is not None:
            wrong.append(f"{name}, line {block.shown_line + 1 + difference[0]}: {difference[1]}")
    for file, drawn in document.pictures.items():
        there = pictures / file
        if not there.exists():
            wrong.append(f"{name} draws {file}, which is not in {pictures.name}/: make docs")
            continue
        difference = compare(_elements(there.read_text(encoding="utf-8")), _elements(drawn), counts=False)
        if difference is not None:
            wrong.append(f"{pictures.name}/{file} is not what {name} draws: {difference[1][:200]}: make docs")
    for stale in sorted({p.name for p in pictures.glob(f"{document.path.stem}-*.svg")} - set(document.pictures)):
        wrong.append(f"{pictures.name}/{stale} is not drawn by {name}: remove it")
    return wrong


def compare(shown: Sequence[str], printed: Sequence[str], counts: bool = True) -> tuple[int, str] | None:
    """Return the first line, from 0, where what is shown is not what is printed, and why; None when all is well.

    Whole numbers are `counts` of something, and have to be the same, unless they too may have been rounded.
    """
    for line, (left, right) in enumerate(zip_longest(shown, printed)):
        if left is None:
            return line, f"the code prints one more line, {right!r}"
        if right is None:
            return line, f"shown is {left!r}, but the code prints no such line"
        if not _same(left.rstrip(), right.rstrip(), counts):
            return line, f"shown is {left!r}, but the code prints {right!r}"
    return None


def _elements(picture: str) -> list[str]:
    """Return the elements of a picture as lines, without names that are made from its contents."""
    return re.split(r"(?<=>)", re.sub(r'"[td][0-9a-f]{8}"', '""', picture))


def _same(shown: str, printed: str, counts: bool) -> bool:
    """Whether two lines are the same but for the rounding of their numbers."""
    if NUMBER.sub("#", shown) != NUMBER.sub("#", printed):
        return False
    return all(_near(a, b, counts) for a, b in zip(NUMBER.finditer(shown), NUMBER.finditer(printed), strict=True))


def _near(shown: re.Match[str], printed: re.Match[str], counts: bool) -> bool:
    """Whether two numbers, with the blanks before them, are the same but for rounding."""
    a, b = shown["number"], printed["number"]
    # A sign more is a blank less: the columns stay where they are.
    if shown["gap"] != printed["gap"] and len(shown[0]) != len(printed[0]):
        return False
    if a == b:
        return True
    if a.endswith("%") != b.endswith("%") or (counts and not (_rounded(shown) and _rounded(printed))):
        return False
    x, y = (float(n.replace(",", "").rstrip("%")) for n in (a, b))
    return abs(x - y) <= 1.0001 * max(_unit(shown), _unit(printed)) + RELATIVE * abs(x)


def _rounded(number: re.Match[str]) -> bool:
    """Whether a number has been rounded, as a count of things has not."""
    return number["places"] is not None or number["power"] is not None or number["number"].endswith("%")


def _unit(number: re.Match[str]) -> float:
    """Return one unit of the last place of a number."""
    return 10.0 ** (int(number["power"] or 0) - len((number["places"] or ".")[1:]))


def refresh(path: Path, pictures: Path) -> None:
    """Run a document; write what its code prints into it, and its pictures into the folder `pictures`."""
    if path.name in SHOWN_ELSEWHERE:
        return
    document = run(path)
    lines = path.read_text(encoding="utf-8").splitlines()
    for block, printed in reversed(document.printed):  # from the end, so that the lines before stay where they are
        output = [line.rstrip() for line in printed.splitlines()]
        if block.shown is not None:
            lines[block.shown_line : block.end - 1] = output
        elif output:
            lines[block.end : block.end] = ["", f"{FENCE}text", *output, FENCE]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    for file, drawn in document.pictures.items():
        pictures.mkdir(exist_ok=True)
        (pictures / file).write_text(drawn, encoding="utf-8")

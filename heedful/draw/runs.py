"""A line in runs of one script, one font and one direction each, in the order in which they are seen.

A run can be shaped by itself. A line of several scripts cannot be shaped as a whole: whoever shapes it takes the script
of its first letter for that of all, and then the signs of Devanagari stay where they were typed.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping
from typing import NamedTuple

from heedful.draw.bidi import ISOLATES, in_sight, levels
from heedful.draw.fonts import Face, needs_font, script_of
from heedful.draw.widths import signs

__all__ = ["Run", "runs"]


class Run(NamedTuple):
    """A part of a line: its text as it is typed, its face, its script ("" for signs of none), and its level."""

    text: str
    face: Face
    script: str
    level: int

    @property
    def turned(self) -> bool:
        """Whether it is written from right to left."""
        return self.level % 2 == 1


def runs(text: str, faces: Mapping[str, Face], plain: Face) -> list[Run]:
    """Return the runs of a line, as they are seen from left to right.

    `faces` has one for each visible character, and `plain` is for what needs none. Marks stay with their letter. What
    belongs to no script, such as quotes, numbers and spaces, is written in the face of the letter before it, or of the
    one after it where none is before, if that face has it.
    """
    deep, at = levels(text), 0
    found: list[Run] = []
    for sign in signs(text):
        level, at = deep[at], at + len(sign)
        if bare := sign.strip(ISOLATES):
            found.append(Run(bare, _face(bare, faces, plain), _script(bare), level))
    found = _joined(_lent(_lent(found)[::-1])[::-1])
    return in_sight(found, [run.level for run in found])


def _face(sign: str, faces: Mapping[str, Face], plain: Face) -> Face:
    """Return the face that has the whole sign, or else that of its letter."""
    given = [faces[c] for c in sign if c in faces]
    return next((face for face in given if _has(face, sign)), given[0] if given else plain)


def _has(face: Face, text: str) -> bool:
    return all(ord(c) in face.characters for c in text if needs_font(c) or c == " ")


def _script(sign: str) -> str:
    """Return the script of a sign, or nothing for one that goes with those beside it."""
    script = script_of(sign[0])
    return script if script == "EMOJI" or unicodedata.category(sign[0])[0] in "LM" else ""


def _lent(line: list[Run]) -> list[Run]:
    """Return signs with those of no script made like the one before them, if it runs the same way and has them."""
    found: list[Run] = []
    for run in line:
        last = found[-1] if found else run
        lends = last.script not in ("", "EMOJI") and last.level == run.level and _has(last.face, run.text)
        found.append(run._replace(face=last.face, script=last.script) if lends and not run.script else run)
    return found


def _joined(line: list[Run]) -> list[Run]:
    """Return signs as runs: what stands side by side and is alike is one."""
    found: list[Run] = []
    for run in line:
        if found and found[-1][1:] == run[1:]:
            found[-1] = run._replace(text=found[-1].text + run.text)
        else:
            found.append(run)
    return found

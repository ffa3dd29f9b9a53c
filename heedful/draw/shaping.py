"""A line of text split into runs of one script, font and direction, in visual order, for the renderer of PNG files.

A run can be shaped by itself. A line of several scripts cannot be shaped as a whole: the shaper takes the script of its
first letter for all, and then vowel signs of Devanagari stay in the order they were typed in.

The bidirectional algorithm is that of Unicode (UAX #9) for a line from left to right, with the isolates that pictures
put around words, and without embeddings and overrides, which pictures remove. python-bidi cannot replace it: it returns
the reordered text only, without the level or the place of a character, and its Python version has no isolates.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import NamedTuple, TypeVar

import regex

from heedful.draw.fonts import Face, needs_font, script_of

ISOLATES = "\u2066\u2067\u2068\u2069"  # left to right, right to left, by the first letter; end
BRACKETS = {"(": ")", "[": "]", "{": "}"}
Part = TypeVar("Part")


class TextRun(NamedTuple):
    """A part of a line: its text in logical order, its face, its script ("" for common characters), and its level."""

    text: str
    face: Face
    script: str
    level: int

    @property
    def right_to_left(self) -> bool:
        """Whether it is written from right to left."""
        return self.level % 2 == 1


def text_runs(text: str, faces: Mapping[str, Face], plain: Face) -> list[TextRun]:
    """Return the runs of a line in visual order, from left to right.

    `faces` has one for each visible character; `plain` is for all others. Characters of no script, such as quotes,
    digits and spaces, take the face of the letter before them, or else of the one after them, if it has them.
    """
    levels, at = bidi_levels(text), 0
    runs: list[TextRun] = []
    for cluster in regex.findall(r"\X", text):
        for part in filter(None, regex.split(f"([{ISOLATES}])", cluster)):
            level, at = levels[at], at + len(part)
            if part not in ISOLATES:
                runs.append(TextRun(part, _face(part, faces, plain), _script(part), level))
    runs = _merged(_inherited(_inherited(runs)[::-1])[::-1])
    return visual_order(runs, [run.level for run in runs])


def _face(cluster: str, faces: Mapping[str, Face], plain: Face) -> Face:
    """Return the face that has the whole cluster, or else that of its letter."""
    candidates = [faces[c] for c in cluster if c in faces]
    return next((face for face in candidates if _has(face, cluster)), candidates[0] if candidates else plain)


def _has(face: Face, text: str) -> bool:
    return all(ord(c) in face.characters for c in text if needs_font(c) or c == " ")


def _script(cluster: str) -> str:
    """Return the script of a cluster, or "" for a common character."""
    script = script_of(cluster[0])
    return script if script == "EMOJI" or unicodedata.category(cluster[0])[0] in "LM" else ""


def _inherited(runs: list[TextRun]) -> list[TextRun]:
    """Return runs of no script with script and face of the run before, if it has the same level and their glyphs."""
    inherited: list[TextRun] = []
    for run in runs:
        last = inherited[-1] if inherited else run
        fits = last.script not in ("", "EMOJI") and last.level == run.level and _has(last.face, run.text)
        inherited.append(run._replace(face=last.face, script=last.script) if fits and not run.script else run)
    return inherited


def _merged(runs: list[TextRun]) -> list[TextRun]:
    """Return neighbouring runs that differ only in their text as one."""
    merged: list[TextRun] = []
    for run in runs:
        if merged and merged[-1][1:] == run[1:]:
            merged[-1] = run._replace(text=merged[-1].text + run.text)
        else:
            merged.append(run)
    return merged


def bidi_levels(text: str, base: int = 0) -> list[int]:
    """Return the level of each character: even from left to right, odd from right to left.

    >>> bidi_levels("ab אב 12")
    [0, 0, 0, 1, 1, 1, 2, 2]
    """
    kinds = [unicodedata.bidirectional(c) for c in text]
    if not base and not {"R", "AL", "AN", "RLI", "FSI"} & set(kinds):
        return [0] * len(text)
    levels, outer, at = [base] * len(text), list[int](), 0
    while at < len(text):
        outer.append(at)
        if text[at] in ISOLATES[:3]:
            end = _end_of_isolate(text, at)
            first = next((kind for kind in kinds[at + 1 : end] if kind in ("L", "R", "AL")), "L")
            reverse = text[at] == ISOLATES[1] or (text[at] == ISOLATES[2] and first != "L")
            deeper = base + 1 + ((base + 1) % 2 != reverse)
            levels[at + 1 : end] = bidi_levels(text[at + 1 : end], deeper)
            at = end
        else:
            at += 1
    for i, level in zip(outer, _resolved([text[i] for i in outer], [kinds[i] for i in outer], base), strict=True):
        levels[i] = level
    return levels


def visual_order(parts: Sequence[Part], levels: Sequence[int]) -> list[Part]:
    """Return parts in the order they are seen from left to right, given the level of each (rule L2).

    >>> visual_order(["a", "B", "1", "C", "d"], [0, 1, 2, 1, 0])
    ['a', 'C', '1', 'B', 'd']
    """
    order = list(range(len(parts)))
    for level in range(max(levels, default=0), 0, -1):
        start = 0
        while start < len(order):
            end = start
            while end < len(order) and levels[order[end]] >= level:
                end += 1
            order[start:end] = order[start:end][::-1]
            start = end + 1
    return [parts[i] for i in order]


def _end_of_isolate(text: str, start: int) -> int:
    depth = 0
    for at in range(start, len(text)):
        depth += (text[at] in ISOLATES[:3]) - (text[at] == ISOLATES[3])
        if depth == 0:
            return at
    return len(text)


def _resolved(text: list[str], kinds: list[str], base: int) -> list[int]:
    """Return the levels of characters of one isolating run."""
    own = "R" if base % 2 else "L"
    kinds = _brackets(text, _weak(kinds, own), own)
    start = 0
    for kind, group in groupby(list(kinds)):  # neutrals go with both sides, or with the line: N1, N2
        end = start + len(list(group))
        if kind == "ON":
            before = _side(kinds[start - 1]) if start else own
            after = _side(kinds[end]) if end < len(kinds) else own
            kinds[start:end] = [before if before == after else own] * (end - start)
        start = end
    deeper = {"L": (0, 1), "R": (1, 0), "EN": (2, 1), "AN": (2, 1)}  # I1, I2
    return [base + deeper[kind][base % 2] for kind in kinds]


def _weak(kinds: list[str], own: str) -> list[str]:
    """Return kinds as L, R, EN and AN for numbers, and ON for neutral characters: rules W1 to W7."""
    kinds, strong = list(kinds), own
    for i, kind in enumerate(kinds):
        if kind in ("NSM", "BN"):
            before = kinds[i - 1] if i else own
            kinds[i] = "ON" if before in ("LRI", "RLI", "FSI", "PDI") else before
        elif kind == "EN" and strong == "AL":
            kinds[i] = "AN"
        elif kind in ("L", "R", "AL"):
            strong = kind
    kinds = ["R" if kind == "AL" else kind for kind in kinds]
    for i in range(1, len(kinds) - 1):  # one point or comma inside a number
        if kinds[i - 1] == kinds[i + 1] and (kinds[i], kinds[i - 1]) in (("ES", "EN"), ("CS", "EN"), ("CS", "AN")):
            kinds[i] = kinds[i - 1]
    for order in (range(1, len(kinds)), range(len(kinds) - 2, -1, -1)):  # signs such as % beside a number
        step = -1 if order.step > 0 else 1
        for i in order:
            if kinds[i] == "ET" and kinds[i + step] == "EN":
                kinds[i] = "EN"
    strong = own
    for i, kind in enumerate(kinds):
        if kind in ("L", "R"):
            strong = kind
        elif kind == "EN" and strong == "L":
            kinds[i] = "L"
        elif kind not in ("EN", "AN"):
            kinds[i] = "ON"
    return kinds


def _brackets(text: list[str], kinds: list[str], own: str) -> list[str]:
    """Return kinds with the same direction for both brackets of a pair: rule N0, for the brackets of ASCII."""
    opened: list[int] = []
    pairs = []
    for i, c in enumerate(text):
        if c in BRACKETS:
            opened.append(i)
        elif c in BRACKETS.values():
            start = next((j for j in reversed(opened) if BRACKETS[text[j]] == c), None)
            if start is not None:
                pairs.append((start, i))
                opened = [j for j in opened if j < start]
    for start, end in sorted(pairs):
        inside = {_side(kind) for kind in kinds[start + 1 : end]} - {"ON"}
        if inside:
            before = next((_side(kind) for kind in reversed(kinds[:start]) if kind != "ON"), own)
            kinds[start] = kinds[end] = own if own in inside else before if before in inside else own
    return kinds


def _side(kind: str) -> str:
    return "R" if kind in ("EN", "AN") else kind

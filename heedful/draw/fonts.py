"""Fonts of the system for the characters of a picture."""

from __future__ import annotations

import os
import re
import sys
import unicodedata
from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

from heedful.errors import ConfigError, DataError, HeedfulError, install_command

PLACES = {
    "linux": ("/usr/share/fonts", "/usr/local/share/fonts", "~/.local/share/fonts", "~/.fonts"),
    "darwin": ("/System/Library/Fonts", "/Library/Fonts", "~/Library/Fonts"),
    "win32": ("%WINDIR%/Fonts", "%LOCALAPPDATA%/Microsoft/Windows/Fonts"),
}
# File names with these are not the upright regular face.
STYLED = re.compile(
    r"bold|italic|oblique|light|thin|black|heavy|medium|narrow|condensed|mono|serif|display|music|looped|unjoined"
    r"|kufi|nastaliq|rashi"
)
WIDE_TAILS = {"HIRAGANA": "JP", "KATAKANA": "JP", "HANGUL": "KR"}
PACKAGES = {"CJK": "fonts-noto-cjk", "HIRAGANA": "fonts-noto-cjk", "KATAKANA": "fonts-noto-cjk"}
PACKAGES |= {"HANGUL": "fonts-noto-cjk", "EMOJI": "fonts-noto-color-emoji"}


class Face(NamedTuple):
    """One face of a font file: its family, and the code points that it has."""

    path: Path
    family: str
    characters: frozenset[int]


def script_of(character: str) -> str:
    """Return the script of a character, the first word of its Unicode name.

    >>> script_of("क"), script_of("م"), script_of("家"), script_of("😀"), script_of("a")
    ('DEVANAGARI', 'ARABIC', 'CJK', 'EMOJI', 'LATIN')
    """
    if ord(character) >= 0x1F000 or character == "\ufe0f" or 0x2600 <= ord(character) < 0x2800:
        return "EMOJI"
    name = unicodedata.name(character, "UNKNOWN")
    wide = unicodedata.east_asian_width(character) in "WF" and name[:2] in ("ID", "FU")
    return "CJK" if wide else re.split("[ -]", name)[0]


def needs_font(character: str) -> bool:
    """Return whether a character is visible: not a space, a format character or a variation selector."""
    kind = unicodedata.category(character)
    return not (character.isspace() or kind[0] == "C" or "\ufe00" <= character <= "\ufe0f")


@lru_cache(maxsize=512)
def faces_of(path: Path) -> tuple[Face, ...]:
    """Return the faces of a font file; none if it is not one."""
    try:
        from fontTools.ttLib import TTCollection, TTFont, TTLibError
    except ImportError:
        raise HeedfulError(f"pictures as .png need the extra png: {install_command('png')}") from None
    try:
        with path.open("rb") as file:
            fonts = TTCollection(file, lazy=True).fonts if path.suffix.lower() == ".ttc" else [TTFont(file, lazy=True)]
            characters = frozenset(fonts[0].getBestCmap() or ())  # of a collection, all faces have nearly the same
            return tuple(Face(path, str(font["name"].getBestFamilyName()), characters) for font in fonts)
    except (TTLibError, OSError, KeyError, ValueError, AssertionError):
        return ()


class Fonts:
    """The fonts of the system, and the font file `own`, which is preferred."""

    def __init__(self, own: Path | None = None, places: Iterable[str] | None = None) -> None:
        if own is not None and not own.exists():
            raise ConfigError(f"{own}: there is no such file; name a font file that ends with .ttf, .otf or .ttc")
        if own is not None and not (own.is_file() and faces_of(own)):
            raise ConfigError(f"{own}: this is not a font file; name one that ends with .ttf, .otf or .ttc")
        self.own = faces_of(own) if own is not None else ()
        names = PLACES.get(sys.platform, PLACES["linux"]) if places is None else places
        folders = [Path(os.path.expandvars(os.path.expanduser(name))) for name in names]
        paths = [p for folder in folders if folder.is_dir() for p in folder.rglob("*")]
        self.files = sorted(p for p in paths if p.suffix.lower() in (".ttf", ".otf", ".ttc"))

    def choose(self, text: str) -> dict[str, Face]:
        """Return a face for each visible character of a text; raise DataError if no font has a character."""
        chosen: dict[str, Face] = {}
        plain = self.plain()
        scripts = {script_of(c) for c in text}
        tail = next((WIDE_TAILS[script] for script in sorted(scripts) if script in WIDE_TAILS), "SC")
        for character in dict.fromkeys(text):
            if not needs_font(character):
                continue
            # Characters that many faces have, such as digits and quotes, are taken from the Latin one.
            common = [plain] if plain and _common(character) else []
            known = [*self.own, *common, *chosen.values()]
            face = next((f for f in known if ord(character) in f.characters), None)
            emoji = script_of(character) == "EMOJI" and face not in self.own
            if face is None or (emoji and "emoji" not in face.family.lower()):
                face = self._search(character, tail) or face
            if face is None:
                raise DataError(_missing(character))
            chosen[character] = face
        return chosen

    def plain(self) -> Face | None:
        """Return the face of Latin letters and digits."""
        return next((face for face in self.own if ord("a") in face.characters), None) or self._search("a", "SC")

    def _search(self, character: str, tail: str) -> Face | None:
        """Return the best face that has a character: one made for its script, upright, of ordinary weight."""
        script = script_of(character).lower()
        for path in sorted(self.files, key=lambda p: _rank(p, script)):
            having = [face for face in faces_of(path) if ord(character) in face.characters]
            if having:
                return next((face for face in having if face.family.endswith(tail)), having[0])
        return None


def _rank(path: Path, script: str) -> tuple[bool, bool, int, bool, int, str]:
    """Return a sort key: files made for a script, regular and upright, come first."""
    name = path.stem.lower()
    wide = script in ("cjk", "hiragana", "katakana", "hangul")
    made_for = ("cjk" in name if wide else script in name) or (script == "latin" and "notosans-" in name)
    colours = ("emoji" in name) != (script == "emoji")
    return (not made_for, colours, len(STYLED.findall(name)), "noto" not in name, len(name), str(path))


def _common(character: str) -> bool:
    """Return whether a character is not a letter, or a letter of Europe."""
    return unicodedata.category(character)[0] not in "LM" or script_of(character) in ("LATIN", "GREEK", "CYRILLIC")


def _missing(character: str) -> str:
    """Return the error message for a character that no font has."""
    script = script_of(character)
    package = PACKAGES.get(script, "fonts-noto-core")
    name = "emoji" if script == "EMOJI" else "Chinese characters" if script == "CJK" else script.capitalize()
    shown = f"{character!r}, U+{ord(character):04X}"
    return f"no font for {name} found ({shown}); install one (on Debian: {package}), or name a font file"

"""Text made safe to print: control characters are shown as escapes, so that data cannot steer a terminal."""

from __future__ import annotations

import re

__all__ = ["escape_json", "printable"]

# C0 without tab and newline, DEL, C1; line and paragraph separators; bidi embeddings, overrides and isolates; lone
# surrogates, such as the undecodable bytes of a file name. The marks U+200E, U+200F and U+061C stay: right-to-left
# text needs them, and they do not reach beyond their place. Joiners stay: scripts and emoji are written with them.
CONTROL = "\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff"
UNSAFE = re.compile(f"[{CONTROL}]")
UNSAFE_LINE = re.compile(f"[{CONTROL}\n]")


def printable(text: str, newlines: bool = True) -> str:
    r"""Return a text with its control characters as Python would write them in a string, `\x1b` or `\u202e`.

    Tabs stay, and line breaks unless `newlines` is False: then the text is one line. All other text, in any script
    and direction, is left as it is.

    >>> printable("a\x1b[31mb"), printable("one\ntwo", newlines=False), printable("שלום")
    ('a\\x1b[31mb', 'one\\ntwo', 'שלום')
    """
    return (UNSAFE if newlines else UNSAFE_LINE).sub(_escape, text)


def escape_json(text: str) -> str:
    r"""Return JSON with the control characters in its strings as `\u` escapes: the same value, safe to print.

    >>> escape_json('"\x9b"')
    '"\\u009b"'
    """
    return UNSAFE.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def _escape(found: re.Match[str]) -> str:
    if found[0] in "\n\r":
        return "\\n" if found[0] == "\n" else "\\r"
    code = ord(found[0])
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"

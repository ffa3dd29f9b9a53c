"""What a Hindi form can be: m or f, then 1 or 2 for one or many, or o or O for the oblique of one or many."""

from __future__ import annotations

from functools import cache

from hindi_forms import ADJECTIVES, NOUNS, VERBS

HONOURED = {"राजा", "रानी", "अध्यापक", "पिता", "माँ", "दादी"}  # one of them is spoken of in the plural
AUXILIARIES = {
    "हूँ": {"m1", "f1"},
    "है": {"m1", "f1"},
    "हैं": {"m2", "f2"},
    "हो": {"m2", "f2"},
    "था": {"m1"},
    "थे": {"m2"},
    "थी": {"f1"},
    "थीं": {"f2"},
    "होगा": {"m1"},
    "होंगे": {"m2"},
    "होगी": {"f1", "f2"},
    "होंगी": {"f2"},
}


@cache
def noun_readings() -> dict[str, set[str]]:
    """Of nouns, and of the nouns in conjunct verbs."""
    found = {"मदद": {"f1"}, "बात": {"f1"}, "पढ़ाई": {"f1"}, "इंतज़ार": {"m1"}, "काम": {"m1"}, "आराम": {"m1"}}
    for word, noun in NOUNS.items():
        g = "f" if noun.feminine else "m"
        numbers = ("2", "o", "2", "O") if word in HONOURED else ("1", "o", "2", "O")
        for form, number in zip(noun.forms, numbers, strict=True):
            found.setdefault(form, set()).add(g + number)
    return found


@cache
def modifier_readings() -> dict[str, set[str]]:
    """Of adjectives that change, of का and of मेरा."""
    owners = ["मेरा", "हमारा", "तुम्हारा", "आपका", "उसका", "उनका", "अपना", "का"]
    forms = [f for f in ADJECTIVES.values() if len(f) == 3] + [(o, o[:-1] + "े", o[:-1] + "ी") for o in owners]
    found: dict[str, set[str]] = {}
    for one, other, feminine in forms:
        for form, readings in ((one, {"m1"}), (other, {"m2", "mo", "mO"}), (feminine, {"f1", "f2", "fo", "fO"})):
            for word in form.split():
                found.setdefault(word, set()).update(readings)
    found["कितने"], found["कितनी"] = {"m2"}, {"f2"}
    return found


@cache
def perfectives() -> dict[str, set[str]]:
    """What a perfective can agree with; before an auxiliary the feminine plural is written like the singular."""
    found: dict[str, set[str]] = {}
    for verb in VERBS.values():
        for form, reading in zip(verb.perfective, ({"m1"}, {"m2"}, {"f1", "f2"}, {"f2"}), strict=True):
            found.setdefault(form, set()).update(reading)
    return found

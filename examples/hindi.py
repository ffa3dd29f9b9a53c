"""Makes `hindi.tsv` and `hindi-test.tsv`: small Hindi–English sentences to try heedful with.

python examples/hindi.py
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import NamedTuple


class Subject(NamedTuple):
    """Who does it: in Hindi and English, feminine or not, person (1 I, 2 you, 3 he, 4 we, 5 they)."""

    hindi: str
    english: str
    feminine: bool
    person: int


class Deed(NamedTuple):
    """What is done: the words before the verb, its stem, its future stem; in English plain, with -s, with -ing."""

    before: str
    stem: str
    future: str
    plain: str
    third: str
    ing: str


SUBJECTS = [
    Subject("मैं", "I", False, 1),
    Subject("मैं", "I", True, 1),
    Subject("तुम", "you", False, 2),
    Subject("वह", "he", False, 3),
    Subject("वह", "she", True, 3),
    Subject("राम", "Ram", False, 3),
    Subject("सीता", "Sita", True, 3),
    Subject("बच्चा", "the child", False, 3),
    Subject("लड़की", "the girl", True, 3),
    Subject("मेरा भाई", "my brother", False, 3),
    Subject("मेरी बहन", "my sister", True, 3),
    Subject("हम", "we", False, 4),
    Subject("वे", "they", False, 5),
    Subject("लड़के", "the boys", False, 5),
]
DEEDS = [
    Deed("खाना", "खा", "खा", "eat", "eats", "eating"),
    Deed("पानी", "पी", "पि", "drink water", "drinks water", "drinking water"),
    Deed("किताब", "पढ़", "पढ़", "read a book", "reads a book", "reading a book"),
    Deed("पत्र", "लिख", "लिख", "write a letter", "writes a letter", "writing a letter"),
    Deed("", "खेल", "खेल", "play", "plays", "playing"),
    Deed("", "सो", "सो", "sleep", "sleeps", "sleeping"),
    Deed("", "दौड़", "दौड़", "run", "runs", "running"),
    Deed("", "हँस", "हँस", "laugh", "laughs", "laughing"),
    Deed("गाना", "गा", "गा", "sing a song", "sings a song", "singing a song"),
    Deed("घर", "जा", "जा", "go home", "goes home", "going home"),
    Deed("स्कूल", "जा", "जा", "go to school", "goes to school", "going to school"),
    Deed("बाज़ार", "जा", "जा", "go to the market", "goes to the market", "going to the market"),
    Deed("काम", "कर", "कर", "work", "works", "working"),
    Deed("चाय", "बना", "बना", "make tea", "makes tea", "making tea"),
    Deed("फ़िल्म", "देख", "देख", "watch a film", "watches a film", "watching a film"),
    Deed("हिंदी", "सीख", "सीख", "learn Hindi", "learns Hindi", "learning Hindi"),
    Deed("हिंदी", "बोल", "बोल", "speak Hindi", "speaks Hindi", "speaking Hindi"),
    Deed("दरवाज़ा", "खोल", "खोल", "open the door", "opens the door", "opening the door"),
    Deed("कपड़े", "धो", "धो", "wash clothes", "washes clothes", "washing clothes"),
]
PRESENT = {1: "हूँ", 2: "हो", 3: "है", 4: "हैं", 5: "हैं"}
AM = {1: "am", 2: "are", 3: "is", 4: "are", 5: "are"}
WAS = {1: "was", 2: "were", 3: "was", 4: "were", 5: "were"}
# After a vowel the future's ending stands as a letter, after a consonant as a vowel sign.
AFTER_VOWEL = {1: "ऊँ", 2: "ओ", 3: "ए", 4: "एँ", 5: "एँ"}
AFTER_CONSONANT = {1: "ूँ", 2: "ो", 3: "े", 4: "ें", 5: "ें"}
TIMES = {
    "progressive": ("अभी", "now"),
    "habit": ("रोज़", "every day"),
    "past": ("कल", "yesterday"),
    "future": ("कल", "tomorrow"),
}


def agree(stem: str, who: Subject) -> str:
    """Add the ending of gender and number: -ā, -ī, -e."""
    return stem + ("ी" if who.feminine else "ा" if who.person in (1, 3) else "े")


def hindi(who: Subject, deed: Deed, tense: str, time: bool, negative: bool) -> str:
    """Return the Hindi sentence."""
    if tense == "future":
        vowel = deed.future[-1] in "ािीुूेैोौ"
        # पी becomes पि before a vowel: पिऊँगा, पियोगे, पिएगा.
        ending = (AFTER_VOWEL if vowel else AFTER_CONSONANT)[who.person]
        ending = "यो" if deed.future == "पि" and who.person == 2 else ending
        verb = [deed.future + ending + agree("ग", who)]
    elif tense == "habit":
        verb = [agree(deed.stem + "त", who), PRESENT[who.person]]
    else:
        verb = [deed.stem, agree("रह", who), PRESENT[who.person] if tense == "progressive" else agree("थ", who)]
    words = [who.hindi, TIMES[tense][0] if time else "", deed.before, "नहीं" if negative else "", *verb]
    return " ".join(word for word in words if word)


def english(who: Subject, deed: Deed, tense: str, time: bool, negative: bool) -> str:
    """Return the English sentence."""
    no = " not" if negative else ""
    if tense == "future":
        verb = f"will{no} {deed.plain}"
    elif tense == "habit" and negative:
        verb = f"{'does' if who.person == 3 else 'do'} not {deed.plain}"
    elif tense == "habit":
        verb = deed.third if who.person == 3 else deed.plain
    else:
        verb = f"{(AM if tense == 'progressive' else WAS)[who.person]}{no} {deed.ing}"
    sentence = f"{who.english} {verb}" + (f" {TIMES[tense][1]}" if time else "")
    return sentence[0].upper() + sentence[1:]


def pairs() -> Iterator[tuple[str, str]]:
    """Yield every sentence there is."""
    for choice in product(SUBJECTS, DEEDS, TIMES, (False, True), (False, True)):
        yield hindi(*choice), english(*choice)


if __name__ == "__main__":
    here = Path(__file__).parent
    every = sorted(set(pairs()))
    random.Random(7).shuffle(every)
    for name, part in (("hindi.tsv", every[:2400]), ("hindi-test.tsv", every[2400:2700])):
        (here / name).write_text("".join(f"{x}\t{y}\n" for x, y in part), encoding="utf-8")

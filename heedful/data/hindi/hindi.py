"""Hindi morphology: how nouns, adjectives and verbs change, as rules over their spelling."""

from __future__ import annotations

from typing import NamedTuple


class HindiAgreement(NamedTuple):
    """What a verb agrees with: person, number and gender."""

    person: int = 3
    plural: bool = False
    feminine: bool = False


DEFAULT = HindiAgreement()
VOWELS = "ाोआ"  # what stems end in, if not in a consonant; the few others are in the tables
# masculine singular, masculine plural, feminine singular, feminine plural
Four = tuple[str, str, str, str]
ENDINGS: Four = ("ा", "े", "ी", "ी")
PERFECTIVE: dict[str, Four] = {
    "कर": ("किया", "किए", "की", "कीं"),
    "दे": ("दिया", "दिए", "दी", "दीं"),
    "ले": ("लिया", "लिए", "ली", "लीं"),
    "पी": ("पिया", "पिए", "पी", "पीं"),
    "जा": ("गया", "गए", "गई", "गईं"),
    "हो": ("हुआ", "हुए", "हुई", "हुईं"),
}
# The subjunctive, to which the future adds -gā: I; he, she, it; we, you (आप), they; you (तुम).
Subjunctive = tuple[str, str, str, str]
SUBJUNCTIVE: dict[str, Subjunctive] = {
    "दे": ("दूँ", "दे", "दें", "दो"),
    "ले": ("लूँ", "ले", "लें", "लो"),
    "पी": ("पिऊँ", "पिए", "पिएँ", "पियो"),
    "हो": ("होऊँ", "हो", "हों", "हो"),
}
POLITE = {"कर": "कीजिए", "दे": "दीजिए", "ले": "लीजिए", "पी": "पीजिए"}


def noun(word: str, feminine: bool, plural: bool, oblique: bool, fixed: bool = False) -> str:
    """Return the form of a noun; `fixed` is a masculine in -ā that keeps it (राजा).

    >>> [noun("लड़का", False, plural, oblique) for plural in (False, True) for oblique in (False, True)]
    ['लड़का', 'लड़के', 'लड़के', 'लड़कों']
    >>> [noun("लड़की", True, plural, oblique) for plural in (False, True) for oblique in (False, True)]
    ['लड़की', 'लड़की', 'लड़कियाँ', 'लड़कियों']
    """
    changes = word.endswith("ा") and not feminine and not fixed
    if changes:
        return word[:-1] + (("ों" if oblique else "े") if plural else ("े" if oblique else "ा"))
    if not plural or not (feminine or oblique):
        return word
    if feminine and word.endswith("िया"):
        return word[:-1] + ("ों" if oblique else "ाँ")
    for long, short in (("ी", "ि"), ("ई", "इ")):
        if word.endswith(long):
            return word[:-1] + short + ("यों" if oblique else "याँ")
    for long, short in (("ू", "ु"), ("ा", "ा"), ("ाँ", "ाँ")):
        if word.endswith(long):
            return word.removesuffix(long) + short + ("ओं" if oblique else "एँ")
    return word + ("ों" if oblique else "ें")


def adjective(word: str, feminine: bool, plural: bool, oblique: bool) -> str:
    """Return the form of an adjective; only those in -ā change, in all their words.

    >>> [adjective("बड़ा", *form) for form in [(False, False, False), (False, False, True), (True, True, False)]]
    ['बड़ा', 'बड़े', 'बड़ी']
    >>> adjective("नया", True, False, False), adjective("नया", False, True, False), adjective("लाल", True, False, False)
    ('नई', 'नए', 'लाल')
    >>> adjective("थका हुआ", False, True, False), adjective("थका हुआ", True, False, False)
    ('थके हुए', 'थकी हुई')
    """
    if " " in word:
        return " ".join(adjective(part, feminine, plural, oblique) for part in word.split())
    if word.endswith("आ"):
        return word[:-1] + ("ई" if feminine else "ए" if plural or oblique else "आ")
    if not word.endswith("ा"):
        return word
    if word.endswith("या"):
        return word[:-2] + ("ई" if feminine else "ए" if plural or oblique else "या")
    return word[:-1] + ("ी" if feminine else "े" if plural or oblique else "ा")


def genitive(possessed: HindiAgreement, oblique: bool) -> str:
    """Return का, के or की: the postposition agrees with what is possessed, like an adjective."""
    return adjective("का", possessed.feminine, possessed.plural, oblique)


def habitual(stem: str, a: HindiAgreement) -> str:
    """Return the imperfective participle: खाता, खाते, खाती."""
    return stem + "त" + _ending(a)


def progressive(a: HindiAgreement) -> str:
    """Return रहा, रहे or रही."""
    return "रह" + _ending(a)


def perfective(stem: str, a: HindiAgreement, last: bool = True) -> str:
    """Return the perfective participle; `last`: no auxiliary follows that could show a feminine plural.

    >>> [perfective("खा", HindiAgreement(3, p, f)) for p, f in ((0, 0), (1, 0), (0, 1), (1, 1))]
    ['खाया', 'खाए', 'खाई', 'खाईं']
    >>> perfective("पढ़", HindiAgreement(3, True, True)), perfective("पढ़", HindiAgreement(3, True, True), last=False)
    ('पढ़ीं', 'पढ़ी')
    """
    if stem in PERFECTIVE:
        forms = PERFECTIVE[stem]
    elif stem[-1] in VOWELS:
        forms = (stem + "या", stem + "ए", stem + "ई", stem + "ईं")
    else:
        forms = (stem + "ा", stem + "े", stem + "ी", stem + "ीं")
    return forms[2 * a.feminine + (a.plural and (last or not a.feminine))]


def infinitive(stem: str, a: HindiAgreement = DEFAULT, oblique: bool = False) -> str:
    """Return the infinitive; it agrees like an adjective: किताब पढ़नी है, कपड़े धोने हैं, खेलने जाना."""
    return adjective(stem + "ना", a.feminine, a.plural, oblique)


def future(stem: str, a: HindiAgreement) -> str:
    """Return the future: the subjunctive and -gā, which agrees.

    >>> [future("खा", HindiAgreement(*a)) for a in ((1, False), (3, False), (3, True), (2, True))]
    ['खाऊँगा', 'खाएगा', 'खाएँगे', 'खाओगे']
    """
    number = 0 if (a.person, a.plural) == (1, False) else 3 if a.person == 2 else 2 if a.plural else 1
    return _subjunctive(stem)[number] + "ग" + _ending(a)


def imperative(stem: str, polite: bool) -> str:
    """Return the command to तुम, or the request to आप.

    >>> imperative("लिख", False), imperative("लिख", True), imperative("खा", True)
    ('लिखो', 'लिखिए', 'खाइए')
    """
    if not polite:
        return _subjunctive(stem)[3]
    return POLITE.get(stem) or stem + ("इए" if stem[-1] in VOWELS else "िए")


def present(a: HindiAgreement) -> str:
    """Return हूँ, हो, है or हैं."""
    if a.person == 2:
        return "हो"
    return "हैं" if a.plural else "हूँ" if a.person == 1 else "है"


def was(a: HindiAgreement) -> str:
    """Return था, थे, थी or थीं."""
    return "थीं" if a.plural and a.feminine else "थ" + _ending(a)


def _ending(a: HindiAgreement) -> str:
    return ENDINGS[2 * a.feminine + a.plural]


def _subjunctive(stem: str) -> Subjunctive:
    if stem in SUBJUNCTIVE:
        return SUBJUNCTIVE[stem]
    if stem[-1] in VOWELS:
        return (stem + "ऊँ", stem + "ए", stem + "एँ", stem + "ओ")
    return (stem + "ूँ", stem + "े", stem + "ें", stem + "ो")

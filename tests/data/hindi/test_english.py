"""English forms, written out for every word of the lexicon."""

import pytest

from heedful.data.hindi import english
from heedful.data.hindi.english import Person
from heedful.data.hindi.lexicon import lexicon

PLURALS = {
    "animal": "animals",
    "apple": "apples",
    "bag": "bags",
    "ball": "balls",
    "banana": "bananas",
    "bird": "birds",
    "book": "books",
    "bottle": "bottles",
    "box": "boxes",
    "boy": "boys",
    "bridge": "bridges",
    "brother": "brothers",
    "car": "cars",
    "cat": "cats",
    "chair": "chairs",
    "child": "children",
    "city": "cities",
    "cow": "cows",
    "cup": "cups",
    "daughter": "daughters",
    "doctor": "doctors",
    "dog": "dogs",
    "door": "doors",
    "egg": "eggs",
    "elephant": "elephants",
    "farmer": "farmers",
    "father": "fathers",
    "film": "films",
    "flower": "flowers",
    "forest": "forests",
    "friend": "friends",
    "garden": "gardens",
    "girl": "girls",
    "goat": "goats",
    "grandmother": "grandmothers",
    "hat": "hats",
    "hill": "hills",
    "horse": "horses",
    "house": "houses",
    "key": "keys",
    "king": "kings",
    "kitchen": "kitchens",
    "letter": "letters",
    "man": "men",
    "mango": "mangoes",
    "market": "markets",
    "monkey": "monkeys",
    "mother": "mothers",
    "newspaper": "newspapers",
    "orange": "oranges",
    "picture": "pictures",
    "poem": "poems",
    "queen": "queens",
    "river": "rivers",
    "room": "rooms",
    "school": "schools",
    "shirt": "shirts",
    "shoe": "shoes",
    "shop": "shops",
    "sister": "sisters",
    "son": "sons",
    "song": "songs",
    "story": "stories",
    "street": "streets",
    "student": "students",
    "sweet": "sweets",
    "table": "tables",
    "teacher": "teachers",
    "temple": "temples",
    "toy": "toys",
    "tree": "trees",
    "umbrella": "umbrellas",
    "village": "villages",
    "wall": "walls",
    "window": "windows",
    "woman": "women",
}
MASS = {"bread", "rice", "food", "water", "milk", "tea", "coffee", "Hindi", "English", "cricket", "football", "chess"}

# base: third person, -ing, past, participle.
VERBS = {
    "bathe": "bathes bathing bathed bathed",
    "break": "breaks breaking broke broken",
    "bring": "brings bringing brought brought",
    "buy": "buys buying bought bought",
    "call": "calls calling called called",
    "catch": "catches catching caught caught",
    "clean": "cleans cleaning cleaned cleaned",
    "climb": "climbs climbing climbed climbed",
    "close": "closes closing closed closed",
    "come": "comes coming came come",
    "cook": "cooks cooking cooked cooked",
    "cross": "crosses crossing crossed crossed",
    "cry": "cries crying cried cried",
    "cut": "cuts cutting cut cut",
    "dance": "dances dancing danced danced",
    "drink": "drinks drinking drank drunk",
    "eat": "eats eating ate eaten",
    "fall": "falls falling fell fallen",
    "give": "gives giving gave given",
    "go": "goes going went gone",
    "hear": "hears hearing heard heard",
    "help": "helps helping helped helped",
    "know": "knows knowing knew known",
    "laugh": "laughs laughing laughed laughed",
    "learn": "learns learning learned learned",
    "lift": "lifts lifting lifted lifted",
    "like": "likes liking liked liked",
    "listen": "listens listening listened listened",
    "live": "lives living lived lived",
    "look": "looks looking looked looked",
    "love": "loves loving loved loved",
    "make": "makes making made made",
    "meet": "meets meeting met met",
    "open": "opens opening opened opened",
    "play": "plays playing played played",
    "read": "reads reading read read",
    "remember": "remembers remembering remembered remembered",
    "rest": "rests resting rested rested",
    "return": "returns returning returned returned",
    "run": "runs running ran run",
    "say": "says saying said said",
    "see": "sees seeing saw seen",
    "sell": "sells selling sold sold",
    "send": "sends sending sent sent",
    "show": "shows showing showed shown",
    "sing": "sings singing sang sung",
    "sit": "sits sitting sat sat",
    "sleep": "sleeps sleeping slept slept",
    "speak": "speaks speaking spoke spoken",
    "stay": "stays staying stayed stayed",
    "stop": "stops stopping stopped stopped",
    "study": "studies studying studied studied",
    "swim": "swims swimming swam swum",
    "talk": "talks talking talked talked",
    "think": "thinks thinking thought thought",
    "wait": "waits waiting waited waited",
    "walk": "walks walking walked walked",
    "want": "wants wanting wanted wanted",
    "wash": "washes washing washed washed",
    "watch": "watches watching watched watched",
    "work": "works working worked worked",
    "write": "writes writing wrote written",
}
PARTICLES = {"look": {"for", "at"}, "talk": {"to"}, "wait": {"for"}, "listen": {"to"}, "sit": {"down"}}

COMPARATIVES = {
    "big": "bigger",
    "cheap": "cheaper",
    "clean": "cleaner",
    "cold": "colder",
    "deep": "deeper",
    "dirty": "dirtier",
    "fat": "fatter",
    "happy": "happier",
    "heavy": "heavier",
    "high": "higher",
    "hot": "hotter",
    "long": "longer",
    "new": "newer",
    "old": "older",
    "small": "smaller",
    "sweet": "sweeter",
    "tall": "taller",
    "wide": "wider",
}

ME, WE, YOU, SHE, THEY = Person(1, False), Person(1, True), Person(2, True), Person(3, False), Person(3, True)


@pytest.mark.parametrize("noun", lexicon().nouns, ids=lambda n: n.english)
def test_plurals(noun):
    if noun.article == "-":
        assert noun.english in MASS
    else:
        assert noun.english in PLURALS, f"write down the plural of {noun.english}"
        assert noun.plural == PLURALS[noun.english]


def test_regular_plurals():
    irregular = {"child", "man", "woman", "mango"}  # these are in the table of nouns
    assert {one: english.plural(one) for one in PLURALS if one not in irregular} == {
        one: many for one, many in PLURALS.items() if one not in irregular
    }


@pytest.mark.parametrize("verb", lexicon().verbs, ids=lambda v: f"{v.nominal} {v.stem} {v.base}")
def test_verbs_of_the_lexicon(verb):
    assert verb.base in VERBS, f"write down the forms of {verb.base}"
    assert [verb.past, verb.participle] == VERBS[verb.base].split()[2:]
    assert not verb.particle or verb.particle in PARTICLES[verb.base]


@pytest.mark.parametrize("base", sorted({v.base for v in lexicon().verbs} | {"want", "love", "like"}))
def test_third_persons_and_ing(base):
    assert base in VERBS, f"write down the forms of {base}"
    assert [english.third(base), english.ing(base)] == VERBS[base].split()[:2]


@pytest.mark.parametrize("adjective", lexicon().adjectives, ids=lambda a: a.english)
def test_comparatives(adjective):
    assert not adjective.comparative or adjective.comparative == COMPARATIVES[adjective.english]


def test_articles():
    words = lexicon()
    an = {"animal", "apple", "egg", "elephant", "orange", "umbrella", "old", "expensive"}
    every = {w.english for w in (*words.nouns, *words.adjectives) if w.english not in MASS}
    assert {w for w in every if english.article(w) == "an"} == an & every
    assert {english.article(w) for w in every - an} == {"a"}


def test_possessives():
    expected = {"boy": "boy's", "boys": "boys'", "children": "children's", "men": "men's", "Ram": "Ram's"}
    assert {one: english.possessive(one) for one in expected} == expected
    assert all(english.possessive(n.english) == f"{n.english}'s" for n in lexicon().names)


def test_auxiliaries():
    everybody = (ME, WE, YOU, SHE, THEY)
    assert [english.be(p) for p in everybody] == ["am", "are", "are", "is", "are"]
    assert [english.was(p) for p in everybody] == ["was", "were", "were", "was", "were"]
    assert [english.have(p) for p in everybody] == ["have", "have", "have", "has", "have"]
    assert [english.do(p) for p in everybody] == ["do", "do", "do", "does", "do"]


def test_contractions():
    expected = {
        "is": "isn't",
        "are": "aren't",
        "was": "wasn't",
        "were": "weren't",
        "has": "hasn't",
        "have": "haven't",
        "had": "hadn't",
        "do": "don't",
        "does": "doesn't",
        "did": "didn't",
        "will": "won't",
        "can": "can't",
        "could": "couldn't",
        "should": "shouldn't",
    }
    assert {one: english.negated(one) for one in expected} == expected

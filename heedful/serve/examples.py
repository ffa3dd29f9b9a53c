"""A sentence to begin with, in the language that a model reads, as far as its vocabulary tells."""

from __future__ import annotations

from heedful.translator import Translator

__all__ = ["EXAMPLES", "example"]

# The Hindi ones are of the embedded corpus; the words of the second are known to every `heedful demo`.
EXAMPLES = (
    "मेरी दादी वह डिब्बा ढूँढ़ रही हैं जो रसोई में था",
    "राम किताब पढ़ रहा है",
    "The letter that you wrote has arrived",
    "Zwei Kinder spielen im Schnee",
    "Deux enfants jouent dans la neige",
    "Dos niños juegan en la nieve",
    "Due bambini giocano nella neve",
    "Duas crianças brincam na neve",
    "Twee kinderen spelen in de sneeuw",
    "Två barn leker i snön",
    "Kaksi lasta leikkii lumessa",
    "Dvě děti si hrají ve sněhu",
    "Dwoje dzieci bawi się na śniegu",
    "Двое детей играют в снегу",
    "Двоє дітей граються в снігу",
    "Δύο παιδιά παίζουν στο χιόνι",
    "İki çocuk karda oynuyor",
    "طفلان يلعبان في الثلج",
    "دو کودک در برف بازی می‌کنند",
    "دو بچے برف میں کھیل رہے ہیں",
    "שני ילדים משחקים בשלג",
    "দুটি শিশু বরফে খেলছে",
    "இரண்டு குழந்தைகள் பனியில் விளையாடுகிறார்கள்",
    "两个孩子在雪地里玩耍",
    "二人の子供が雪の中で遊んでいる",
    "두 아이가 눈 속에서 놀고 있다",
    "Hai đứa trẻ chơi trong tuyết",
    "Dua anak bermain di salju",
    "Watoto wawili wanacheza kwenye theluji",
)
MOST = 0.45  # tokens for a character: what takes more is spelled, not known


def example(translator: Translator) -> str:
    """Return the sentence that the model's vocabulary cuts into the fewest tokens for its length, or "".

    A vocabulary has long pieces of the language that it was learned from, and spells others letter by letter.
    Sentences with anything that the model has no token for are left out.
    """

    def tokens(text: str) -> float:
        return (len(translator.parts.source.encode(text).ids) - 1) / len(text)

    known = [text for text in EXAMPLES if not translator.unknown(text)]
    best = min(known, key=tokens, default="")
    return best if best and tokens(best) <= MOST else ""

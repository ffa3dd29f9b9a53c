"""SentencePiece subwords, as in Marian and Opus-MT: a model that cuts text, and a list of known tokens.

They are separate, as with Marian: the model of one language cuts its text, and the list may be that of both languages.
A piece that is not in the list is unknown.
"""

from __future__ import annotations

import base64
import binascii
import json
import math
import struct
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

from heedful.errors import ConfigError, ModelError, foreign, install_command
from heedful.files import parse_json
from heedful.text.codec import SPECIALS, UNKNOWN, Codec, replace_surrogates
from heedful.trace.trace import OTHER_SPACES, SPACE, is_space

MARK = '{"sentencepiece": '  # how the dump of such a codec begins
GROWTH = 100  # bytes by which a normalizer may replace a character; NFKC makes 33 of one
PIECE = 1_000  # bytes of a piece: the time to cut a text grows with it; the trainer makes at most 16 characters
FIELDS = 5_000_000  # of a model, which are read one by one
ZIPF = 2.7  # added to the rank of a token
LAST_SPACE = 0x3000  # no later character is white space
THREADS = 4  # of the trainer: the sums, and so the pieces, depend on it


def sentencepiece() -> ModuleType:
    """Return the package; raise ModelError, with the command that installs it, if there is none."""
    try:
        import sentencepiece as package
    except ImportError:
        raise ModelError(
            f"SentencePiece is needed for this and is not installed; get it with: {install_command('opus')}"
        ) from None
    return package


class Cut(NamedTuple):
    """The pieces of a string."""

    ids: list[int]
    tokens: list[str]
    offsets: list[tuple[int, int]]


class SentencePieces(Codec):
    """A SentencePiece model and the tokens in the order of their ids, the special ones first.

    Where the vocabulary has language codes, as in `>>fra<< Good morning`, one at the start of a text is a token.
    """

    def __init__(self, model: bytes, tokens: Sequence[str]) -> None:
        self.model, self.tokens = model, tuple(tokens)
        if self.tokens[:4] != SPECIALS:
            raise ModelError(f"the tokenizer does not begin with the tokens {', '.join(SPECIALS)}")
        # The special tokens are left out: text never encodes to one.
        self._ids = {token: index for index, token in enumerate(self.tokens) if index >= len(SPECIALS)}
        if len(self._ids) + len(SPECIALS) != len(self.tokens) or self._ids.keys() & set(SPECIALS):
            twice = next(token for token, n in Counter(self.tokens).items() if n > 1)
            raise ModelError(f"the tokenizer has the token '{twice}' twice")
        if bad := [token for token in self.tokens if token != replace_surrogates(token)]:
            raise ModelError(f"the tokenizer has a token that is not text, {bad[0]!a}")
        self._coded = any(_is_code(token) for token in self.tokens)
        self.gap = "" if SPACE in self._ids else " "
        self._processor = _load(model)

    @classmethod
    def learn(cls, texts: Iterable[str], size: int, normalization: str = "nfkc") -> SentencePieces:
        """Learn at most `size` tokens from texts: a unigram model, always the same from the same texts.

        `normalization` is that of the settings, and part of the model: it cuts all texts after it.
        """
        sentences = [replace_surrogates(text) for text in texts]
        model = _train(sentences, size, normalization) if any(sentences) else b""
        if not model:  # nothing to learn from: a model is needed all the same, but none of its pieces
            return cls(_train(["."], 10, normalization), SPECIALS)
        processor = _load(model)
        pieces = [processor.IdToPiece(i) for i in range(len(processor))]  # the most probable first
        return cls(model, (*SPECIALS, *(piece for piece in pieces if piece not in SPECIALS))[:size])

    @classmethod
    def read_dump(cls, text: str) -> SentencePieces:
        """Read what `dump` wrote."""
        try:
            parsed = parse_json(text, "the tokenizer cannot be read")
            model, tokens = base64.b64decode(parsed["sentencepiece"], validate=True), parsed["tokens"]
        except (ValueError, KeyError, TypeError, binascii.Error) as error:
            raise ModelError(f"the tokenizer cannot be read: {error}") from None
        if not isinstance(tokens, list) or not all(isinstance(token, str) for token in tokens):
            raise ModelError("the tokenizer cannot be read: its tokens are not a list of strings")
        return cls(model, tokens)

    def dump(self) -> str:
        """Return the model and the tokens as JSON."""
        record = {"sentencepiece": base64.b64encode(self.model).decode("ascii"), "tokens": list(self.tokens)}
        return json.dumps(record, ensure_ascii=False)

    def __len__(self) -> int:
        return len(self.tokens)

    @property
    def share(self) -> float:
        """The share of the tokens, apart from the special ones, that the model can cut a text into."""
        pieces = {self._processor.IdToPiece(i) for i in range(self._processor.GetPieceSize())}
        return sum(token in pieces for token in self._ids) / max(1, len(self._ids))

    def token(self, index: int) -> str:
        """Return the token with an id."""
        return self.tokens[index]

    def ids(self, texts: Sequence[str]) -> list[tuple[int, ...]]:
        """Return the ids of many sentences, each closed by `</s>`, without the spans, in half the time."""
        heads, bodies = self._split(texts)
        pieces_of = self._call(bodies, str)
        end = SPECIALS.index("</s>")
        return [(*self._look_up([*head, *pieces]), end) for head, pieces in zip(heads, pieces_of, strict=True)]

    def head(self, text: str) -> tuple[int, ...]:
        """Return the id of the language's code at the beginning of a text, if there is one."""
        return tuple(self._look_up(self._split([text])[0][0]))

    def _cut(self, texts: Sequence[str]) -> list[Cut]:
        heads, bodies = self._split(texts)
        cuts = []
        for text, head, result in zip(texts, heads, self._call(bodies, "offset_mapping"), strict=True):
            shift = sum(map(len, head))
            spans = [(start + shift, end + shift) for start, end in result["offsets"]]
            tokens = [*head, *result["pieces"]]
            cuts.append(
                Cut(
                    self._look_up(tokens),
                    tokens,
                    [*((0, len(h)) for h in head), *filled(text, spans, result["pieces"])],
                )
            )
        return cuts

    def _split(self, texts: Sequence[str]) -> tuple[list[list[str]], list[str]]:
        """Return the language code of each text, if it has one, and the rest."""
        heads: list[list[str]] = [[] for _ in texts]
        bodies = [replace_surrogates(text) for text in texts]
        for row, text in enumerate(bodies):
            if self._coded and text.startswith(">>") and (end := text.find("<<") + 2) > 2:
                heads[row], bodies[row] = [text[:end]], text[end:]
        return heads, bodies

    def _look_up(self, tokens: Sequence[str]) -> list[int]:
        return [self._ids.get(token, UNKNOWN) for token in tokens]

    def _call(self, texts: list[str], kind: object) -> list[Any]:
        with foreign("the tokenizer cannot read this text"):
            return list(self._processor.Encode(texts, return_type=kind)) if texts else []


def filled(text: str, spans: Sequence[tuple[int, int]], tokens: Sequence[str]) -> Iterator[tuple[int, int]]:
    """Yield non-empty spans: of several pieces of one character, only the last has its span in SentencePiece.

    The ligature ﬁ is read as f and i; both get its span. A piece that is white space itself has none.
    """
    for (start, end), token in zip(spans, tokens, strict=True):
        bare = all(map(is_space, text[start:end])) and not all(map(is_space, token))
        if bare and end < len(text) and not is_space(text[end]):
            end += 1
        yield (start, end)


def _is_code(token: str) -> bool:
    """Whether a token is the code of a language."""
    return token.startswith(">>") and token.endswith("<<")


def _check_model(model: bytes) -> None:
    """Raise ModelError if a model replaces characters by long strings, or has long pieces.

    A text could take any memory or time. The model is a protocol buffer: its pieces are field 1, each with its text in
    field 1. In its normalizers (fields 3 and 5) there is a table (field 2): four bytes with the size of a trie, the
    trie, and what it replaces characters by, each ended by a NUL.
    """
    for number, part in _fields(memoryview(model)):
        for inner, table in _fields(part) if number in (1, 3, 5) else ():
            if number == 1:
                if inner == 1 and len(table) > PIECE:
                    raise ModelError(f"it has a piece of {len(table):,} bytes; at most {PIECE:,} are allowed")
            elif inner == 2 and len(table) >= 4:
                strings = bytes(table[4 + int.from_bytes(table[:4], "little") :]).split(b"\0")
                if (longest := max(map(len, strings))) > GROWTH:
                    raise ModelError(
                        f"its normalizer replaces a character by {longest:,} bytes; at most {GROWTH} are allowed"
                    )


def _fields(content: memoryview) -> Iterator[tuple[int, memoryview]]:
    """Yield the fields of a protocol buffer that hold bytes, by number.

    Raises ModelError for what the format does not allow, and for groups, which SentencePiece does not write: protocol
    buffers skip them, and what is not understood here could not be checked.
    """
    at = count = 0

    def whole_number() -> int:
        nonlocal at
        value = shift = 0
        while at < len(content) and shift < 64:
            byte = content[at]
            at, value, shift = at + 1, value | (byte & 127) << shift, shift + 7
            if byte < 128:
                return value
        raise ModelError("it is damaged: a number does not end")

    while at < len(content):
        key, count = whole_number(), count + 1
        if count > FIELDS:
            raise ModelError(f"it has more than {FIELDS:,} fields")
        if not 8 <= key < 2**32:
            raise ModelError(f"it is damaged: no field has the number {key >> 3}")
        if key & 7 == 2:
            size = whole_number()
            if at + size <= len(content):
                yield key >> 3, content[at : at + size]
            at += size
        elif key & 7 == 0:
            whole_number()
        elif key & 7 in (1, 5):
            at += 8 if key & 7 == 1 else 4
        else:
            raise ModelError(f"field {key >> 3} has the wire type {key & 7}, which SentencePiece never writes")
        if at > len(content):
            raise ModelError(f"it is damaged: it ends in the middle of field {key >> 3}")


def ranked_model(tokens: Sequence[str], like: bytes) -> bytes:
    """Return a unigram model of these tokens, the most frequent first, that normalises text as the model `like` does.

    It stands in for a model that is lost: by Zipf's law the probability of the token of rank r is about 1 / (r + 2.7).
    """

    def field(number: int, content: bytes) -> bytes:
        size, left = b"", len(content)
        while left > 127:
            size, left = size + bytes([left & 127 | 128]), left >> 7
        return bytes([number << 3 | 2]) + size + bytes([left]) + content

    def piece(text: str, score: float, kind: int) -> bytes:
        content = field(1, text.encode()) + b"\x15" + struct.pack("<f", score) + bytes([0x18, kind])
        return field(1, content)

    known = [token for token in dict.fromkeys(tokens) if token and token not in SPECIALS]
    scale = math.log(math.log(len(known) + ZIPF) + 1)
    parts = [piece("<unk>", 0.0, 2), piece("<s>", 0.0, 3), piece("</s>", 0.0, 3)]
    parts += [piece(token, -math.log(rank + ZIPF) - scale, 1) for rank, token in enumerate(known)]
    parts.append(field(2, b"\x18\x01"))  # the trainer's settings: unigram
    return b"".join(
        [*parts, *(field(number, bytes(part)) for number, part in _fields(memoryview(like)) if number == 3)]
    )


def _load(model: bytes) -> Any:  # noqa: ANN401  (the package has no types)
    package = sentencepiece()
    processor = package.SentencePieceProcessor()
    with foreign("this is not a SentencePiece model"):
        if not model:
            raise ModelError("this is not a SentencePiece model: it is empty")
        try:
            _check_model(model)
        except ModelError as error:
            raise ModelError(f"this is not a SentencePiece model that is read: {error}") from None
        processor.LoadFromSerializedProto(model)
    return processor


def _train(sentences: Sequence[str], size: int, normalization: str) -> bytes:
    """Return a model that knows all characters and has about `size` pieces; nothing if there is nothing to learn.

    The normalization is a part of the model, so that other programs read text as we do.
    """
    package = sentencepiece()
    package.set_min_log_level(3)
    into = BytesIO()
    with _rules(normalization) as rules:
        normalizer = package.SentencePieceNormalizer(**rules)
        characters = {character for sentence in sentences for character in str(normalizer.Normalize(sentence))}
        named = {f"normalization_{name}": value for name, value in rules.items()}
        try:
            package.SentencePieceTrainer.Train(
                sentence_iterator=iter(sentences),
                model_writer=into,
                model_type="unigram",
                **named,
                # It counts <unk>, <s> and </s>; we count <pad>, too. Fewer pieces than characters it refuses to learn.
                vocab_size=max(size - 1, len(characters) + 8),
                hard_vocab_limit=False,
                character_coverage=1.0,
                max_sentence_length=2**30,
                num_threads=THREADS,
                minloglevel=3,
            )
        except RuntimeError as error:
            if "empty()" in str(error):  # no sentences that it takes, or nothing in them but what it skips
                return b""
            raise ConfigError(
                f"text.kind=sentencepiece: no vocabulary could be learned from these texts ({error})"
            ) from None
    return _without(into.getvalue(), rules.get("rule_tsv", ""))


def _without(model: bytes, path: str) -> bytes:
    """Return a model without the path of its rules, which differs from run to run: field 6 of its field 3."""
    if not path:
        return model
    written = _field(6, path.encode())
    return b"".join(
        _field(number, bytes(part).replace(written, b"") if number == 3 else bytes(part))
        for number, part in _fields(memoryview(model))
    )


def _field(number: int, content: bytes) -> bytes:
    """Return a field of a protocol buffer that holds bytes."""
    head, size = bytearray([number << 3 | 2]), len(content)
    while size > 127:
        head.append(size & 127 | 128)
        size >>= 7
    return bytes([*head, size]) + content


@contextmanager
def _rules(normalization: str) -> Iterator[dict[str, str]]:
    """Return the normalization as SentencePiece's options have it; "none" makes a space of other white space."""
    if normalization == "nfkc":
        yield {"rule_name": "nmt_nfkc"}
        return
    with tempfile.TemporaryDirectory(prefix="heedful-") as folder:
        path = Path(folder) / "spaces.tsv"
        spaces = (code for code in range(LAST_SPACE + 1) if OTHER_SPACES.fullmatch(chr(code)))
        path.write_text("".join(f"{code:x}\t20\n" for code in spaces), encoding="ascii")
        yield {"rule_tsv": str(path)}

"""The texts of a model of `transformers`: tokens as people read them, character spans and words.

Tokenizers mark spaces and bytes in their own ways: `Ġthe`, `▁the`, `##ing`, `<0xF0>`. Here a token is shown without
its space. The bytes of a character that several tokens share are shown as `<0xF0>`, and all of these tokens have the
span of the character. Special tokens ([CLS], </s>, <|im_start|>) have empty spans.
"""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from heedful.errors import ConfigError, DataError, foreign, printable
from heedful.text.codec import replace_surrogates
from heedful.text.sentencepiece import filled
from heedful.trace import Text, Word
from heedful.trace.trace import SPACE, is_space, unspaced

Span = tuple[int, int]

BYTE = re.compile("<0x([0-9A-F]{2})>")  # a byte of a character that is not in a SentencePiece vocabulary
ESCAPED = re.compile("[\udc80-\udcff]")  # bytes that are not UTF-8, as `surrogateescape` decodes them
JOINING = "'’ʼ-‐‑"  # punctuation that may stand inside a word
PENDING = 8  # tokens, at most, that are decoded together because none alone is a whole character
POSITIONS = re.compile(r"(^|\.)(position_embeddings?|embed_positions|positions_embed|pos_embed\w*|wpe)$")


class _TokenBytes(NamedTuple):
    """A token: the bytes that it stands for, with its space, or its name where it is special."""

    content: bytes
    special: bool
    name: str


def tokenize(tokenizer: Any, text: str, *, words: bool = True, target: bool = False) -> tuple[list[int], Text]:  # noqa: ANN401
    """Return the ids of a text, special tokens included, and the text with its tokens, spans and words.

    Without `words`, every token is a word; this works with every tokenizer. `target` reads the text as the target of
    an encoder-decoder. Raises ConfigError for a tokenizer that cannot say which characters a token stands for, and
    DataError for a text without tokens.
    """
    text = replace_surrogates(text)
    with foreign("the tokenizer cannot read this text", DataError):
        ids, offsets, added = _encode(tokenizer, text, target)
        pieces = [
            piece._replace(content=b"", special=True) if extra else piece
            for piece, extra in zip(_pieces(tokenizer, ids), added, strict=True)
        ]
    if not ids:
        raise DataError("the text has no tokens; give at least one word")
    exact = offsets is not None
    if offsets is None:
        if words:
            raise ConfigError(
                f"the tokenizer {type(tokenizer).__name__} does not say which characters its tokens stand for, so they "
                "cannot be joined to words; words=False shows its tokens"
            )
        offsets = _searched(text, pieces)
    spans = _spans(text, offsets, pieces)
    tokens = tuple(_shown(piece) for piece in pieces)
    if not words or not exact:
        return ids, Text(text, tokens, spans, _single(tokens, spans))
    return ids, Text(text, tokens, spans, words_of(text, tokens, spans))


def text_of(tokenizer: Any, ids: Iterable[int], *, words: bool = True, after: Text | None = None) -> Text:  # noqa: ANN401
    """Return the text that ids stand for, with their spans and words; special tokens have empty spans.

    `after` is a text that comes before: the result has its tokens first, and no word has tokens of both.
    """
    ids = [int(i) for i in ids]
    with foreign("the tokenizer cannot decode these token ids", DataError):
        pieces = _pieces(tokenizer, ids)
        text, offsets = _joined(pieces, after is None or not after.text)
    spans = _spans(text, offsets, pieces)
    tokens = tuple(_shown(piece) for piece in pieces)
    found = words_of(text, tokens, spans) if words else _single(tokens, spans)
    result = Text(text, tokens, spans, found)
    return result if after is None else Text.join(after.text + text, (0, len(after.text)), (after, result))


def words_of(text: str, tokens: Sequence[str], spans: Sequence[Span]) -> tuple[Word, ...]:
    """Join tokens to words: what white space separates; punctuation and special tokens are words of their own.

    An apostrophe or a hyphen between letters stays in its word. In scripts without spaces every token is a word, but
    tokens that share a character are always of one word.

    >>> text, tokens = "it isn't!", ["[CLS]", "it", "isn", "'", "t", "!", "[SEP]"]
    >>> spans = [(0, 0), (0, 2), (3, 6), (6, 7), (7, 8), (8, 9), (9, 9)]
    >>> [word.text for word in words_of(text, tokens, spans)]
    ['[CLS]', 'it', "isn't", '!', '[SEP]']
    """
    words: list[Word] = []
    first = 0  # the first token of the word that is being joined
    for i, (token, (start, end)) in enumerate(zip(tokens, spans, strict=True)):
        if i + 1 < len(spans) and _together(text, (token, tokens[i + 1]), (start, end), spans[i + 1]):
            continue
        start, end = _extent(text, spans[first : i + 1])
        shown = token if start == end or text[start:end].isspace() else text[start:end]
        words.append(Word(shown, start, end, first, i + 1))
        first = i + 1
    return tuple(words)


def check_length(model: Any, count: int, part: Any = None) -> None:  # noqa: ANN401
    """Raise DataError if a text of `count` tokens is longer than the positions that a model has.

    `part` is its encoder or decoder, if only that reads the text: each may have a table of positions of its own.
    """
    table = None if part is None else _table(part)
    limit = positions(model) if table is None else table
    if limit is not None and count > limit:
        raise DataError(
            f"the text has {count:,} tokens, but the model reads at most {limit:,}: it has no more positions; "
            "shorten the text"
        )


def positions(model: Any) -> int | None:  # noqa: ANN401
    """Return how many tokens a model can read, or None if nothing limits them, as with relative positions."""
    table = _table(model)
    if table is not None:
        return table
    config = model.config
    config = config.get_text_config() if hasattr(config, "get_text_config") else config
    if hasattr(config, "relative_attention_num_buckets") or getattr(config, "alibi", False):
        return None
    for name in ("max_position_embeddings", "n_positions", "n_ctx"):
        limit = getattr(config, name, None)
        if isinstance(limit, int) and limit > 0:
            return limit
    return None


def _table(model: Any) -> int | None:  # noqa: ANN401
    """Return how many positions the smallest table of positions has, or None without tables."""
    tables = []
    for name, module in model.named_modules():
        rows = getattr(module, "num_embeddings", None)
        if isinstance(rows, int) and POSITIONS.search(name):
            # RoBERTa begins after the padding; BART and OPT keep the first two rows free.
            padding, offset = getattr(module, "padding_idx", None), getattr(module, "offset", 0)
            tables.append(rows - offset if offset or padding is None else rows - padding - 1)
    return int(min(tables)) if tables else None


def _together(text: str, tokens: tuple[str, str], span: Span, after: Span) -> bool:
    """Whether two neighbouring tokens are of one word."""
    (start, end), (next_start, next_end) = span, after
    if (start == end and tokens[0] != SPACE) or next_start == next_end:
        return False  # special tokens
    blank, next_blank = start == end or text[start:end].isspace(), text[next_start:next_end].isspace()
    if blank or next_blank:  # a single space is of the word after it, as in ▁the
        return not next_blank and tokens[0] == SPACE and next_start == end
    if next_start < end:
        return True
    if any(map(str.isspace, text[end:next_start])) or unspaced(text[next_start]) or unspaced(text[end - 1]):
        return False
    return not (_apart(text, span) or _apart(text, after))


def _apart(text: str, span: Span) -> bool:
    """Whether a token is punctuation only, and is not an apostrophe or a hyphen between letters."""
    start, end = span
    if not all(unicodedata.category(c)[0] == "P" for c in text[start:end]):
        return False
    inside = start > 0 and end < len(text) and _is_letter(text[start - 1]) and _is_letter(text[end])
    return not (inside and end - start == 1 and text[start] in JOINING)


def _is_letter(character: str) -> bool:
    return character.isalnum() or unicodedata.category(character)[0] == "M"


def _extent(text: str, spans: Sequence[Span]) -> Span:
    """Return the characters of the tokens of a word, without those that are white space only if there are others."""
    full = [(a, b) for a, b in spans if a < b and not text[a:b].isspace()] or spans
    return min(a for a, _ in full), max(b for _, b in full)


def _single(tokens: Sequence[str], spans: Sequence[Span]) -> tuple[Word, ...]:
    return tuple(Word(t, a, b, i, i + 1) for i, (t, (a, b)) in enumerate(zip(tokens, spans, strict=True)))


def _encode(tokenizer: Any, text: str, target: bool) -> tuple[list[int], list[Span] | None, list[bool]]:  # noqa: ANN401
    """Return the ids of a text, the characters of each, and which the tokenizer has added before and after the text.

    The characters are None if the tokenizer does not say them.
    """
    name = "text_target" if target else "text"
    options: dict[str, Any] = {name: text, "truncation": False, "padding": False, "verbose": False}
    if getattr(tokenizer, "is_fast", False):
        encoded = tokenizer(**options, return_offsets_mapping=True, return_special_tokens_mask=True)
        offsets = [(int(a), int(b)) for a, b in encoded["offset_mapping"]]
        return list(encoded["input_ids"]), offsets, [bool(n) for n in encoded["special_tokens_mask"]]
    ids = [int(i) for i in tokenizer(**options)["input_ids"]]
    inside = _sentencepiece_offsets(tokenizer, text, ids, target)
    if inside is None:
        return ids, None, [False] * len(ids)
    first, found = inside
    last = len(ids) - first - len(found)
    return (
        ids,
        [*[(0, 0)] * first, *found, *[(0, 0)] * last],
        [*[True] * first, *[False] * len(found), *[True] * last],
    )


def _sentencepiece_offsets(
    tokenizer: Any,  # noqa: ANN401
    text: str,
    ids: list[int],
    target: bool,
) -> tuple[int, list[Span]] | None:
    """Return the number of the first token of a text, and the characters of each, as SentencePiece has them.

    Return None for a tokenizer without a SentencePiece model.
    """
    names = ("spm_target" if target else "spm_source", "sp_model")
    processor = next((found for name in names if (found := getattr(tokenizer, name, None)) is not None), None)
    if processor is None:
        return None
    trie, added = getattr(tokenizer, "tokens_trie", None), getattr(tokenizer, "added_tokens_encoder", {})
    tokens: list[str] = []
    offsets: list[Span] = []
    at = 0
    for part in trie.split(text) if trie is not None else [text]:
        code = re.match(">>.*?<<", part) if hasattr(tokenizer, "spm_source") else None  # Marian's of a language
        if part in added or code:
            head = part if code is None else code[0]
            tokens.append(head)
            offsets.append((at, at + len(head)))
        rest = "" if part in added else part[code.end() :] if code else part
        if rest:
            cut = processor.Encode(rest, return_type="offset_mapping")
            tokens += cut["pieces"]
            begin = at + len(part) - len(rest)
            offsets += [(a + begin, b + begin) for a, b in filled(rest, cut["offsets"], cut["pieces"])]
        at += len(part)
    if target and hasattr(tokenizer, "_switch_to_target_mode"):
        tokenizer._switch_to_target_mode()
    body = tokenizer.convert_tokens_to_ids(tokens)
    if target and hasattr(tokenizer, "_switch_to_input_mode"):
        tokenizer._switch_to_input_mode()
    for first in range(len(ids) - len(body) + 1):  # after the special tokens, of which there are few
        if ids[first : first + len(body)] == body:
            return first, offsets
    return None


def _pieces(tokenizer: Any, ids: Sequence[int]) -> list[_TokenBytes]:  # noqa: ANN401
    """Return the bytes that each id stands for, with the spaces."""
    style = _style(tokenizer)
    added = dict(getattr(tokenizer, "added_tokens_decoder", None) or {})
    special = _special_ids(tokenizer, added, style)
    found = tokenizer.convert_ids_to_tokens(list(ids))
    unknown = {i for i, name in zip(ids, found, strict=True) if name is None}  # models have ids to spare
    special |= unknown
    names = [f"<id {i}>" if i in unknown else str(name) for i, name in zip(ids, found, strict=True)]
    if style == "other":
        plain = [i for i in ids if i not in special]
        contents = iter(_decoded(tokenizer, plain))
        return [
            _TokenBytes(b"", True, n) if i in special else _TokenBytes(next(contents), False, n)
            for i, n in zip(ids, names, strict=True)
        ]
    read = {"bytes": _byte_level, "metaspace": _metaspace, "wordpiece": _wordpiece}[style]
    known = {
        i: _TokenBytes(b"", True, n) if i in special else _TokenBytes(read(n), False, n)
        for i, n in set(zip(ids, names, strict=True))
    }
    for i in known.keys() & added.keys() - special:
        name = str(getattr(added[i], "content", added[i]))
        known[i] = _TokenBytes(name.encode() if style == "bytes" else read(name), False, name)
    pieces = [known[i] for i in ids]
    if style == "wordpiece":  # isn't and well-known are cut at the apostrophe and the hyphen
        for i in range(1, len(pieces) - 1):
            if names[i] in JOINING and names[i - 1][-1:].isalnum() and names[i + 1][:1].isalnum():
                for j in (i, i + 1):
                    pieces[j] = pieces[j]._replace(content=pieces[j].content.removeprefix(b" "))
    return pieces


def _special_ids(tokenizer: Any, added: dict[int, Any], style: str) -> set[int]:  # noqa: ANN401
    """Return the ids that stand for no characters: not those of unknown and masked words."""
    special = {i for i, token in added.items() if getattr(token, "special", False)}
    special |= {*getattr(tokenizer, "all_special_ids", ()), *getattr(tokenizer, "id_to_lang_token", ())}
    roles = {getattr(tokenizer, f"{name}_token_id", None) for name in ("bos", "eos", "pad", "sep", "cls")}
    # Nothing is unknown in bytes: there the unknown token is a special one, the end of a text in GPT-2.
    names = ("mask",) if style == "bytes" else ("mask", "unk")
    words = {getattr(tokenizer, f"{name}_token_id", None) for name in names} - roles
    return special - words


def _style(tokenizer: Any) -> str:  # noqa: ANN401
    """Return how a tokenizer writes its tokens: bytes, metaspace, wordpiece or other."""
    if getattr(tokenizer, "is_fast", False):
        decoder = tokenizer.backend_tokenizer.decoder
        state = str(bytes(decoder.__getstate__()), "utf-8") if decoder is not None else "{}"
        kinds = set(_types(json.loads(state)))
        if "WordPiece" in kinds:
            return "wordpiece"
        if "Metaspace" in kinds or ("Replace" in kinds and SPACE in state):
            return "metaspace"
        if "ByteLevel" in kinds and not getattr(tokenizer.backend_tokenizer.model, "end_of_word_suffix", None):
            return "bytes"
        return "other"
    if any(hasattr(tokenizer, name) for name in ("sp_model", "spm_source")):
        return "metaspace"
    return "other"


def _types(state: Any) -> Iterator[str]:  # noqa: ANN401
    """Yield the types of a decoder and of its parts."""
    yield str(state.get("type", ""))
    for part in state.get("decoders", ()):
        yield from _types(part)


def _alphabet() -> dict[str, int]:
    """Return the bytes of the characters in which GPT-2 writes them: those that can be printed are themselves."""
    printed = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)]
    others = [byte for byte in range(256) if byte not in printed]
    return {chr(byte): byte for byte in printed} | {chr(256 + i): byte for i, byte in enumerate(others)}


ALPHABET = _alphabet()


def _byte_level(token: str) -> bytes:
    if all(c in ALPHABET for c in token):
        return bytes(ALPHABET[c] for c in token)
    return token.encode()


def _metaspace(token: str) -> bytes:
    if match := BYTE.fullmatch(token):
        return bytes([int(match[1], 16)])
    return token.replace(SPACE, " ").encode()


def _wordpiece(token: str) -> bytes:
    if token.startswith("##") and token != "##":
        return token[2:].encode()
    closing = len(token) == 1 and token in ".,;:!?)]}%।，。؟،"
    return token.encode() if closing else b" " + token.encode()


def _decoded(tokenizer: Any, ids: Sequence[int]) -> list[bytes]:  # noqa: ANN401
    """Return the bytes of each id by decoding a few at a time, for a tokenizer of an unknown kind.

    Of ids that are a character together, the last has its bytes.
    """
    contents: list[bytes] = []
    context = read = 0  # ids before `read` are decoded; those from `context` are decoded again, for the spaces
    for i in range(len(ids)):
        before = str(tokenizer.decode(ids[context:read])) if read > context else ""
        now = str(tokenizer.decode(ids[context : i + 1]))
        if now.endswith("\ufffd") and i - read < PENDING:
            contents.append(b"")
            continue
        contents.append(now[len(before) :].encode() if now.startswith(before) else now.encode())
        context, read = read, i + 1
    return contents


def _joined(pieces: Sequence[_TokenBytes], begins: bool) -> tuple[str, list[Span]]:
    """Return the text of tokens, and the characters of each; `begins`: without the space that words begin with."""
    contents = [piece.content for piece in pieces]
    for i, piece in enumerate(pieces) if begins else ():
        if piece.content:
            if piece.name.startswith(SPACE) or piece.content == b" " + piece.name.encode():
                contents[i] = piece.content.removeprefix(b" ")
            break
    escaped = b"".join(contents).decode("utf-8", "surrogateescape")
    sizes = [1 if ESCAPED.match(c) else len(c.encode()) for c in escaped]
    starts = np.concatenate([[0], np.cumsum(sizes, dtype=np.int64)]) if sizes else np.zeros(1, np.int64)
    edges = np.concatenate([[0], np.cumsum([len(content) for content in contents], dtype=np.int64)])
    first = np.searchsorted(starts, edges[:-1], side="right") - 1
    last = np.searchsorted(starts, edges[1:], side="left")
    spans = [(a, max(a, b)) for a, b in zip(first.tolist(), last.tolist(), strict=True)]
    return ESCAPED.sub("\ufffd", escaped), spans


def _shown(piece: _TokenBytes) -> str:
    """Return a token as people read it, on one line."""
    if piece.special or not piece.content:
        return printable(piece.name, newlines=False)
    if piece.name.startswith("##"):
        return piece.name
    text = piece.content.decode("utf-8", "surrogateescape")
    if not text.strip(" "):
        return text.replace(" ", SPACE)
    text = ESCAPED.sub(lambda match: f"<0x{ord(match[0]) - 0xDC00:02X}>", text.strip(" "))
    return printable(text, newlines=False).replace("\t", "\\t")


def _searched(text: str, pieces: Sequence[_TokenBytes]) -> list[Span]:
    """Return where the tokens are in a text, searched from left to right: a guess, for tokenizers that do not say."""
    spans: list[Span] = []
    lowered = text.lower() if len(text.lower()) == len(text) else text
    at = 0
    for piece in pieces:
        wanted = piece.content.decode("utf-8", "ignore").strip()
        start = -1
        if wanted and not piece.special:
            start = max(text.find(wanted, at, at + len(wanted) + 32), lowered.find(wanted, at, at + len(wanted) + 32))
        spans.append((start, start + len(wanted)) if start >= 0 else (at, at))
        at = spans[-1][1]
    return spans


def _spans(text: str, offsets: Sequence[Span], pieces: Sequence[_TokenBytes]) -> tuple[Span, ...]:
    """Return the characters of each token, in order, without the white space at either end.

    A letter and its accent that were composed into one are reported with the letter's span alone; hence a span goes on
    up to the next token, but not over white space. Special tokens have empty spans.
    """
    spans: list[Span] = []
    real = [(a, b) for (a, b), piece in zip(offsets, pieces, strict=True) if not piece.special or a < b]
    following = iter([*(a for a, _ in real[1:]), len(text)])
    before = (0, 0)  # of the last token that is not special
    for (start, end), piece in zip(offsets, pieces, strict=True):
        if piece.special:
            spans.append((max(start, before[1]),) * 2 if start < end else (before[1],) * 2)
            if start < end:
                next(following)
            continue
        limit = next(following)
        content = piece.content.decode("utf-8", "replace")
        if content.isspace():
            start, end = _blank(text, start, end, len(content))
        else:
            while end < limit and not text[end].isspace():
                end += 1
            start, end = _trimmed(text, start, end)
            start = max(start, before[0])  # a normaliser may report spans out of order
            end = max(end, before[1] if start < before[1] else start)
            if start == end:
                start, end = before if before[0] < before[1] else (start, min(start + 1, len(text)))
        spans.append((start, end))
        before = (start, end) if start < end else before
    for i in range(len(pieces) - 1, -1, -1):  # those at the end stand after the last character
        if not pieces[i].special:
            break
        spans[i] = (len(text), len(text))
    return tuple(spans)


def _trimmed(text: str, start: int, end: int) -> Span:
    """Return a span without the white space at either end, unless it has nothing else."""
    if text[start:end].isspace():
        return start, end
    while start < end and text[start].isspace():
        start += 1
    while start < end and text[end - 1].isspace():
        end -= 1
    return start, end


def _blank(text: str, start: int, end: int, size: int) -> Span:
    """Return the span of a token of white space: tokenizers report that of the word, or an empty one."""
    before = max(start - size, 0)
    for first, last in ((start, end), (before, start), (start, min(start + size, len(text)))):
        if first < last and all(map(is_space, text[first:last])):
            return first, last
    return start, start

"""Weights in a pickle, such as `pytorch_model.bin`, with checks before `torch.load` reads it.

`weights_only` prevents torch from running code, but not from taking memory or time. The file is a zip archive of
uncompressed members, one of which is a pickle that names the others. Compressed or overlapping members raise an error:
a zip archive of 3 MB can unpack to any size. So does a tuple that the pickle uses twice: nested tuples, each used
twice, take exponential time to hash. A file that cannot be checked raises an error too.
"""

from __future__ import annotations

import io
import pickletools
import struct
import warnings
import zipfile
from collections.abc import Sequence
from typing import BinaryIO

import torch
from torch import Tensor

from heedful.errors import ModelError

MEMBERS = 100_000
PICKLES = 5  # concatenated, in files of before 2020
PICKLE = 64_000_000  # bytes of the pickle, which has names and shapes only
PUTS = ("BINPUT", "LONG_BINPUT", "PUT", "MEMOIZE")
GETS = ("BINGET", "LONG_BINGET", "GET")
KEEP = (*PUTS, "PROTO", "FRAME")  # opcodes that leave the stack as it is
# Opcodes after which the top of the stack is not a tuple. After any other it may be one: `MARK SETITEMS`, for example,
# changes nothing.
NO_TUPLE = frozenset(
    (
        *("NONE", "NEWTRUE", "NEWFALSE", "INT", "BININT", "BININT1", "BININT2", "LONG", "LONG1", "LONG4"),
        *("FLOAT", "BINFLOAT", "STRING", "BINSTRING", "SHORT_BINSTRING", "UNICODE", "BINUNICODE", "SHORT_BINUNICODE"),
        *("BINUNICODE8", "BINBYTES", "SHORT_BINBYTES", "BINBYTES8", "EMPTY_LIST", "EMPTY_DICT", "EMPTY_SET"),
        *("GLOBAL", "STACK_GLOBAL", "REDUCE", "NEWOBJ", "BINPERSID", *GETS),
    )
)


def load_pickle(content: bytes, name: str, inside: Sequence[str] = ()) -> dict[str, Tensor]:
    """Return the weights in the content of the file `name`; raise ModelError if there is anything else in it.

    Weights may be in a dictionary with one of the keys `inside`, beside others, such as the state of an optimizer.
    """
    try:
        check_pickle(content)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch's, about its own past
            weights = torch.load(io.BytesIO(content), map_location="cpu", weights_only=True)
    except (Exception, RecursionError) as error:  # of any kind: a damaged file, or one that would run code
        reason = next(iter(str(error).splitlines()), type(error).__name__)
        raise ModelError(f"{name}: these are not plain weights, and nothing else is loaded ({reason})") from None
    if isinstance(weights, dict):
        weights = next((weights[key] for key in inside if isinstance(weights.get(key), dict)), weights)
    if not isinstance(weights, dict):
        raise ModelError(f"{name}: expected weights by name, found {type(weights).__name__}")
    for key, weight in weights.items():
        if not isinstance(key, str) or not isinstance(weight, Tensor) or not _plain(weight):
            shown = repr(key[:80]) if isinstance(key, str) else f"a name of type {type(key).__name__}"
            raise ModelError(f"{name}: {shown} is not a plain tensor")
    return dict(weights)


def _plain(weight: Tensor) -> bool:
    """Whether all elements of a tensor are in memory: with strides of 0, one number could appear as billions."""
    if weight.layout != torch.strided or weight.device.type != "cpu" or weight.is_quantized:
        return False
    return weight.numel() * weight.element_size() <= weight.untyped_storage().nbytes()


def check_pickle(content: bytes | BinaryIO) -> None:
    """Raise ModelError for a file that is not plain weights, or cannot be checked.

    Of an open file only the list of members and the pickle are read.
    """
    file = io.BytesIO(content) if isinstance(content, bytes) else content
    size = file.seek(0, io.SEEK_END)
    file.seek(0)
    if file.read(4) != b"PK\x03\x04":  # written by torch until 2020: several pickles, then the numbers
        file.seek(0)
        _check_opcodes(file.read(PICKLE), PICKLES)
        return
    _check_end(file, size)
    try:
        with zipfile.ZipFile(file) as archive:
            members = archive.infolist()
            if len(members) > MEMBERS:
                raise ModelError(f"has {len(members):,} members; weights have at most {MEMBERS:,}")
            total = 0
            for member in members:
                total += member.file_size
                if member.compress_type != zipfile.ZIP_STORED or member.compress_size != member.file_size:
                    raise ModelError(f"its member {member.filename!r:.80} is compressed, which torch never does")
                if total > size:
                    raise ModelError("its members are larger than the file; the file is damaged")
            for member in members:
                # torch also reads data.PKL; and the archive has two names of each member.
                if ".pkl" in (member.filename + member.orig_filename).casefold():
                    if member.file_size > PICKLE:
                        raise ModelError(f"its pickle has {member.file_size:,} bytes; at most {PICKLE:,} are read")
                    _check_opcodes(archive.read(member), 1)
    except (zipfile.BadZipFile, zipfile.LargeZipFile, ValueError, OSError, EOFError, RuntimeError, NotImplementedError):
        raise ModelError("this zip archive is damaged") from None


def _check_end(file: BinaryIO, length: int) -> None:
    """Raise ModelError unless the list of members is where the archive says, with nothing after it.

    Python and torch search for it in different ways: with two lists in an archive, each could read another one.
    """
    first = max(0, length - 22 - 20 - 56)  # the end of the list, and what large archives have before it
    file.seek(first)
    content = file.read(length - first)
    end = len(content) - 22
    if end < 0 or content[end : end + 4] != b"PK\x05\x06":
        raise ModelError("this zip archive is damaged, or has a comment, which torch never writes")
    size, offset = struct.unpack("<II", content[end + 12 : end + 20])
    if content[max(end - 20, 0) : max(end - 16, 0)] == b"PK\x06\x07":
        end -= 20 + 56
        if end < 0 or content[end : end + 4] != b"PK\x06\x06":
            raise ModelError("this zip archive is damaged")
        if struct.unpack("<Q", content[end + 56 + 8 : end + 56 + 16])[0] != first + end:
            raise ModelError("this zip archive is damaged")
        larger = struct.unpack("<QQ", content[end + 40 : end + 56])
        for short, long in zip((size, offset), larger, strict=True):
            if short not in (long, 0xFFFFFFFF):
                raise ModelError("this zip archive is damaged")
        size, offset = larger
    if offset + size != first + end:
        raise ModelError("this zip archive is damaged: its list of members is not where it should be")


def _check_opcodes(content: bytes, count: int) -> None:
    """Raise ModelError if a tuple is used twice in any of `count` concatenated pickles."""
    file = io.BytesIO(content)
    try:
        for _ in range(count):
            _check_one(file)
    except ModelError:
        raise
    except Exception as error:  # pickletools raises many kinds for what is not a pickle
        raise ModelError(f"its pickle is damaged ({error!s:.80})") from None


def _check_one(file: io.BytesIO) -> None:
    tuples: set[int] = set()
    memo: set[int] = set()
    last = ""  # the last opcode that may have changed the top of the stack
    for opcode, argument, _ in pickletools.genops(file):
        name = opcode.name
        if name in PUTS:
            number = len(memo) if argument is None else int(argument)
            memo.add(number)
            if last in NO_TUPLE:
                tuples.discard(number)
            else:
                tuples.add(number)
        elif name in GETS and int(argument or 0) in tuples:
            raise ModelError("its pickle uses a tuple twice, which weights never do")
        elif name == "DUP":
            raise ModelError("its pickle duplicates the top of its stack, which weights never do")
        if name not in KEEP:
            last = name

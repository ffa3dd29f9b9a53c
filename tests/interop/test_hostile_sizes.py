"""Small files that would take much memory or time: aliases of one matrix, long lists of settings, odd numbers."""

from __future__ import annotations

import io
import struct

import pytest

from heedful.errors import ModelError
from heedful.interop.ctranslate2_import import WeightsFile
from heedful.interop.marian_binary import read_yaml


def text(value: str) -> bytes:
    return struct.pack("<H", len(value) + 1) + value.encode() + b"\0"


def weights(variables: list[tuple[str, tuple[int, ...], int, bytes]], aliases: list[tuple[str, str]]) -> WeightsFile:
    raw = struct.pack("<I", 6) + text("TransformerSpec") + struct.pack("<II", 7, len(variables))
    for name, shape, kind, content in variables:
        raw += text(name) + struct.pack(f"<B{len(shape)}IBI", len(shape), *shape, kind, len(content)) + content
    raw += struct.pack("<I", len(aliases)) + b"".join(text(alias) + text(name) for alias, name in aliases)
    return WeightsFile(io.BytesIO(raw), len(raw), "model.bin")


def test_aliases_of_one_matrix_are_few() -> None:
    matrix = ("one", (64, 64), 1, bytes(4096))
    names = [f"n{i}" for i in range(30)]
    assert weights([matrix], [(name, "one") for name in names[:3]]).shape("n2") == (64, 64)
    with pytest.raises(ModelError, match=r"model\.bin: by aliases .* 4 times"):
        weights([matrix], [(name, "one") for name in names])


@pytest.mark.parametrize("number", [float("nan"), float("inf")])
def test_a_setting_is_a_finite_number(number: float) -> None:
    file = weights([("num_heads", (), 0, struct.pack("<f", number))], [])
    with pytest.raises(ModelError, match="'num_heads' is (nan|inf)"):
        file.value("num_heads", 8)


def test_a_long_list_of_settings_is_read_in_one_pass() -> None:
    """With a copy of the list for each item this takes a minute."""
    assert len(read_yaml(b"models:\n" + b"- a\n" * 200_000, "config.yml")["models"]) == 200_000

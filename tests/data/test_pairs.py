"""Pairs from columns and from parallel files, and the words of every refusal."""

import gzip

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heedful.data import Pair, Pairs, parse_columns, read_parallel, read_tsv
from heedful.errors import ConfigError, DataError


@pytest.fixture
def write(tmp_path):
    def write(text, name="pairs.tsv"):
        path = tmp_path / name
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return path

    return write


def refusal(read, *arguments):
    with pytest.raises(DataError) as caught:
        read(*arguments)
    return str(caught.value)


def test_tsv_by_hand(write):
    path = write("मैं घर\tI home\n\n \t \n x \t y\u00a0\nz\t\n\tz\nlast\tone")
    assert read_tsv([path]) == Pairs(
        [
            Pair("मैं घर", "I home", "pairs.tsv:1"),
            Pair("x", "y", "pairs.tsv:4"),
            Pair("last", "one", "pairs.tsv:7"),
        ],
        blank=2,
        half=2,
    )


def test_many_files_are_joined(write):
    a, b = write("a\tb\n\n", "a.tsv"), write(gzip.compress(b"c\td\te\nf\t\tg\n"), "b.tsv.gz")
    assert read_tsv([a, b]) == Pairs([Pair("a", "b", "a.tsv:1"), Pair("c", "d", "b.tsv.gz:1")], blank=1, half=1)


def test_columns_are_chosen(write):
    path = write("1\ta\tb\n2\tc\td\n")
    assert [p[:2] for p in read_tsv([path], (3, 2)).pairs] == [("b", "a"), ("d", "c")]


def test_crlf_and_byte_order_mark_are_not_text(write):
    assert read_tsv([write("\ufeffa\tb\r\nc\td\r\n")]).pairs == [
        Pair("a", "b", "pairs.tsv:1"),
        Pair("c", "d", "pairs.tsv:2"),
    ]


def test_line_separators_inside_a_sentence(write):
    assert read_tsv([write("a\u2028b\tc\x0bd\n")]).pairs == [Pair("a\u2028b", "c\x0bd", "pairs.tsv:1")]


@pytest.mark.parametrize(
    ("text", "columns", "words"),
    [
        ("मैं घर जाता हूँ\n", (1, 2), "line 1: expected 2 columns separated by a tab, found 1: 'मैं घर जाता हूँ'"),
        ("\n\na b\n", (1, 2), "line 3: expected 2 columns separated by a tab, found 1: 'a b'"),
        ("a\tb\nc\n", (1, 2), "line 2: expected 2 columns separated by a tab, as in line 1, found 1: 'c'"),
        (
            "\na\tb\nc\td\te\n",
            (1, 2),
            "line 3: expected 2 columns separated by a tab, as in line 2, found 3: 'c\td\te'",
        ),
        ("a\tb\n", (1, 3), "line 1: expected 3 columns separated by a tab, found 2: 'a\tb'"),
        (
            "x" * 61,
            (1, 2),
            f"line 1: expected 2 columns separated by a tab, found 1: '{'x' * 59}…'",
        ),
        ("x" * 60, (1, 2), f"line 1: expected 2 columns separated by a tab, found 1: '{'x' * 60}'"),
    ],
)
def test_wrong_columns(write, text, columns, words):
    path = write(text)
    assert refusal(read_tsv, [path], columns) == f"{path}, {words}"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "the file is empty, expected sentence pairs"),
        ("\ufeff", "only blank lines (1), expected sentence pairs"),
        ("\n \n\t\n", "only blank lines (3), expected sentence pairs"),
        ("a\t\n\n\tb\n", "no pair has both a source and a target (2 have one empty side)"),
    ],
)
def test_nothing_in_the_file(write, text, words):
    path = write(text)
    assert refusal(read_tsv, [path]) == f"{path}: {words}"


def test_each_file_must_hold_something(write):
    empty = write("", "empty.tsv")
    assert refusal(read_tsv, [write("a\tb\n"), empty]).startswith(f"{empty}: ")


def test_encoding_errors_come_through(write):
    path = write(b"a\tb\nc\t\xff\n")
    assert refusal(read_tsv, [path]).startswith(f"{path}, line 2: byte 3 is 0xff")


def test_parallel_by_hand(write):
    x, y = write("a\n\nb\n c\nd\te\n", "x.txt"), write(gzip.compress(b"1\n\n\n3 \n4\n"), "y.txt")
    assert read_parallel(x, y) == Pairs(
        [Pair("a", "1", "x.txt:1"), Pair("c", "3", "x.txt:4"), Pair("d\te", "4", "x.txt:5")], blank=1, half=1
    )


@pytest.mark.parametrize(("short", "long"), [(2, 3), (0, 1), (1, 10)])
def test_parallel_files_of_unequal_length(write, short, long):
    a, b = write("a\n" * short, "a.txt"), write("b\n" * long, "b.txt")
    words = (
        f"{a} has {short} lines but {b} has {long}; line {short + 1} of {b} has no partner. "
        "Parallel files need the same number of lines"
    )
    assert refusal(read_parallel, a, b) == words
    assert refusal(read_parallel, b, a) == words


def test_parallel_files_with_nothing(write):
    a, b = write("\n\n", "a.txt"), write("\n\n", "b.txt")
    assert refusal(read_parallel, a, b) == f"{a} and {b}: only blank lines (2), expected sentence pairs"
    c = write("c\n\n", "c.txt")
    assert refusal(read_parallel, a, c).endswith("no pair has both a source and a target (1 have one empty side)")


def test_a_missing_parallel_file_is_named(write, tmp_path):
    a = write("a\n", "a.txt")
    assert refusal(read_parallel, a, tmp_path / "b.txt") == f"{tmp_path / 'b.txt'}: there is no such file"


SIDES = st.text(st.sampled_from("ab \u00a0म"), max_size=3)


@given(st.lists(st.tuples(SIDES, SIDES), min_size=1))
def test_every_line_is_a_pair_or_counted(tmp_path_factory, rows):
    path = tmp_path_factory.mktemp("rows") / "rows.tsv"
    path.write_text("".join(f"{x}\t{y}\n" for x, y in rows), encoding="utf-8")
    whole = [(x.strip(), y.strip()) for x, y in rows if x.strip() and y.strip()]
    if not whole:
        assert refusal(read_tsv, [path])
        return
    found = read_tsv([path])
    assert [p[:2] for p in found.pairs] == whole
    assert found.half == sum(bool(x.strip()) != bool(y.strip()) for x, y in rows)
    assert found.blank + found.half + len(whole) == len(rows)


@pytest.mark.parametrize(("text", "columns"), [("1,2", (1, 2)), ("2,1", (2, 1)), (" 3 , 10 ", (3, 10))])
def test_columns(text, columns):
    assert parse_columns(text) == columns


@pytest.mark.parametrize("text", ["", ",", "1", "1,", "1,2,3", "0,1", "-1,2", "a,b", "1;2", "1.0,2", "²,1"])
def test_columns_that_cannot_be_read(text):
    with pytest.raises(ConfigError) as caught:
        parse_columns(text)
    assert str(caught.value) == (f"columns are '{text}', expected two numbers from 1, source then target, such as 2,1")

"""Pairs from TSV, CSV, JSON lines and parallel files, and the words of every refusal."""

import csv
import gzip
import io
import json
import pickle
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heedful.data import PairFile, PairList, Raw, sides
from heedful.errors import ConfigError, DataError


@pytest.fixture
def write(tmp_path):
    def write(text, name="pairs.tsv"):
        path = tmp_path / name
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return str(path)

    return write


def rows(path, *options, target=""):
    return [tuple(raw) for raw in PairFile(path, *options, target=target).rows()]


def refusal(path, *options, target=""):
    with pytest.raises(DataError) as caught:
        rows(path, *options, target=target)
    return str(caught.value)


# ---- TSV


def test_tsv_by_hand(write):
    path = write("मैं घर\tI home\n\n \t \n x \t y\u00a0\nz\t\n\tz\nlast\tone")
    assert rows(path) == [
        (1, "मैं घर", "I home"),
        (2, "", ""),
        (3, "", ""),
        (4, " x ", " y\u00a0"),
        (5, "z", ""),
        (6, "", "z"),
        (7, "last", "one"),
    ]


def test_columns_are_chosen(write):
    path = write("1\ta\tb\n2\tc\td\n")
    assert rows(path, "", "3,2") == [(1, "b", "a"), (2, "d", "c")]
    assert rows(path, "", " 1 , 3 ") == [(1, "1", "b"), (2, "2", "d")]


def test_a_tsv_header_is_asked_for_by_names(write):
    path = write("\ufeffid\thi\ten \r\n1\tमैं\tI\r\n")
    assert rows(path, "", "hi,en") == [(2, "मैं", "I\r")]
    assert rows(path)[0] == (1, "\ufeffid", "hi")
    assert refusal(path, "", "hi,eng") == (
        f"{path}, line 1: there is no column 'eng', only id, hi, en. Did you mean 'en'?"
    )


def test_carriage_returns_and_byte_order_mark_stay(write):
    path = write("\ufeffa\tb\r\nc\td\r\n")
    assert rows(path) == [(1, "\ufeffa", "b\r"), (2, "c", "d\r")]
    assert list(sides(PairFile(path).rows())) == [("a", "b"), ("c", "d")]


def test_only_a_line_feed_ends_a_line(write):
    assert rows(write("a\u2028b\tc\x0bd\re\n")) == [(1, "a\u2028b", "c\x0bd\re")]


@pytest.mark.parametrize(
    ("text", "columns", "words"),
    [
        ("मैं घर जाता हूँ\n", "", "line 1: expected 2 columns separated by a tab, found 1: 'मैं घर जाता हूँ'"),
        ("\n\na b\n", "1,2", "line 3: expected 2 columns separated by a tab, found 1: 'a b'"),
        ("a\tb\r\nc\r\n", "", "line 2: expected 2 columns separated by a tab, as in line 1, found 1: 'c'"),
        ("\na\tb\nc\td\te\n", "", "line 3: expected 2 columns separated by a tab, as in line 2, found 3: 'c\td\te'"),
        ("\ufeffa\tb\n", "1,3", "line 1: expected 3 columns separated by a tab, found 2: 'a\tb'"),
        ("x" * 61, "", f"line 1: expected 2 columns separated by a tab, found 1: '{'x' * 59}…'"),
        ("x" * 60, "", f"line 1: expected 2 columns separated by a tab, found 1: '{'x' * 60}'"),
        (b"a\tb\nc\t\xff\n", "", "line 2: byte 3 is 0xff, which is not UTF-8; convert the file to UTF-8 first"),
    ],
)
def test_wrong_tsv(write, text, columns, words):
    path = write(text)
    assert refusal(path, "", columns) == f"{path}, {words}"


# ---- CSV


def test_csv_by_hand(write):
    path = write('\ufeffen,hi\r\n"Yes, I go",मैं\r\n\r\n"He said ""no""","two\nlines"\r\n,x\r\na,b\r\n', "p.csv")
    assert rows(path) == [
        (2, "Yes, I go", "मैं"),
        (3, "", ""),
        (4, 'He said "no"', "two\nlines"),
        (6, "", "x"),
        (7, "a", "b"),
    ]


@pytest.mark.parametrize(
    ("text", "columns", "first"),
    [
        ("en,hi\na,b\n", "", ("a", "b")),
        ("target,source\na,b\n", "", ("b", "a")),
        ("id,Source,note, Target\n1,a,n,b\n", "", ("a", "b")),
        ("id,tgt,src\n1,a,b\n", "", ("b", "a")),
        ("id,en,hi\n1,a,b\n", "hi,en", ("b", "a")),
        ("id,English,Hindi\n1,a,b\n", "English,Hindi", ("a", "b")),
        ("English,Hindi\na,b\n", "", ("a", "b")),
        ("en-US,hin_Deva\na,b\n", "", ("a", "b")),
        ("sentence1,sentence2\na,b\n", "", ("a", "b")),
        ("Hi,Salut\na,b\n", "Hi,Salut", ("a", "b")),
        ("en;hi\na,1;b\n", "", ("a,1", "b")),
        ('en\thi\n"a\tb"\tc\n', "", ("a\tb", "c")),
        ("\n\nen,hi\na,b\n", "", None),
    ],
)
def test_csv_columns(write, text, columns, first):
    found = rows(write(text, "p.csv"), "", columns)
    assert found == [(1, "", ""), (2, "", ""), (4, "a", "b")] if first is None else found == [(2, *first)]


def check_facts(message, path, words):
    """The message names the file and the line, and has these words, or all of several."""
    first, *others = [words] if isinstance(words, str) else words
    assert message.startswith(f"{path}, {first}")
    assert all(fact in message for fact in others)


@pytest.mark.parametrize("pair", ["Hi,Salut", "Je suis.,I am.", "No,Si", "Go away,Va-t-en", "1,one", "bye-bye,x"])
def test_a_csv_without_a_header_loses_no_pair(write, pair):
    """In doubt it is refused; with numbers there is no header."""
    path = write(f"{pair}\nYes,Oui\n", "p.csv")
    x, y = pair.split(",")
    for fact in (f"{path}, line 1: '{x}' and '{y}'", "columns='1,2'"):
        assert fact in refusal(path)
    assert rows(path, "", "1,2") == [(1, x, y), (2, "Yes", "Oui")]
    assert rows(path, "", "2,1") == [(1, y, x), (2, "Oui", "Yes")]


@pytest.mark.parametrize(
    ("text", "columns", "words"),
    [
        (
            "id,en,hi\n1,a,b\n",
            "",
            ("line 1: ", "id, en, hi", "columns='en,hi'"),
        ),
        ("id,en,hi\n", "en,hin", "line 1: there is no column 'hin', only id, en, hi. Did you mean 'hi'?"),
        ("id,en,hi\n", "1,4", "line 1: there is no column 4, only 3: id, en, hi"),
        (
            "id,en,hi\n1,a,b\n",
            "3,2",
            ("line 1: ", "hi and en", "columns='hi,en'"),
        ),
        (
            "1,Hi,Salut\n2,a,b\n",
            "",
            ("line 1: ", "1, Hi, Salut", "columns='Hi,Salut'", "columns='2,3'"),
        ),
        ("a b\nc\n", "", "line 1: expected columns for source and target with their names, found only 'a b'"),
        ("en,hi\na,b\n\nc\n", "", "line 4: expected 2 columns separated by a comma, as in line 1, found 1: 'c'"),
        (
            'en;hi\n"a\nb";c\nd;e;f\n',
            "",
            "line 4: expected 2 columns separated by a semicolon, as in line 1, found 3: 'd;e;f'",
        ),
        (b"en,hi\na,b\n\xe9,c\n", "", "line 3: byte 1 is 0xe9, which is not UTF-8; convert the file to UTF-8 first"),
    ],
)
def test_wrong_csv(write, text, columns, words):
    path = write(text, "p.csv")
    check_facts(refusal(path, "", columns), path, words)


# ---- more columns than two, and what is said of a file


def said(path, *options):
    heard: list[str] = []
    found = [tuple(raw) for raw in PairFile(path, *options).rows(heard.append)]
    return found, heard


def test_more_columns_than_two_are_said(write):
    path = write("a b\tc\t0-0 1-0\n\nd\te\t0-0\n")
    pairs, (message,) = said(path)
    assert pairs == [(1, "a b", "c"), (2, "", ""), (3, "d", "e")]
    assert all(fact in message for fact in ("3 columns", "1 and 2", "columns='2,3'"))
    assert said(path, "", "1,2")[1] == []
    assert said(write("a\tb\n"))[1] == []


@pytest.mark.parametrize(("row", "better"), [("{}\ta\tb", "2,3"), ("{}\ta\t{}0\tb", "2,4"), ("{}\ta\tb\t0.5", "2,3")])
def test_numbers_are_not_taken_for_sentences(write, row, better):
    text = "".join(row.format(n, n) + "\n" for n in range(1, 300))
    path, width = write(text), row.count("\t") + 1
    for fact in (f"{path}: {width} columns", "numbers", f"columns='{better}'"):
        assert fact in refusal(path)
    assert len(rows(path, "", better)) == len(rows(path, "", "1,2")) == 299
    assert len(rows(write(text + row.format("x", 1).replace("x", "word") + "\n"), "", "1,2")) == 300
    # with one word among the first, it may be a text; and numbers with words beside them are a task
    assert len(rows(write("word" + text[1:]))) == 299
    assert len(rows(write("1\tone\n2\ttwo\n"))) == 2


def test_a_tsv_header_is_not_taken_for_a_pair(write):
    path = write("\ufeffid\tSource\tTarget\r\n1\ta\tb\r\n")
    check_facts(refusal(path), path, ("line 1: ", "header", "columns='Source,Target'"))


@pytest.mark.parametrize(
    ("name", "text", "columns"),
    [
        ("p.csv", "en,hi\na,b\n", ""),
        ("p.jsonl", '{"en": "a", "hi": "b"}\n', ""),
        ("p.tsv", "en\thi\na\tb\n", "en,hi"),
    ],
)
def test_a_byte_order_mark_is_said(write, name, text, columns):
    assert said(write("\ufeff" + text, name), "", columns)[1] == ["removed a byte order mark"]
    assert said(write(text, name), "", columns)[1] == []


KINDS = {
    "plain.tsv": "a\tb\n",
    "head.tsv": "en\thi\na\tb\n",
    "p.csv": "hi,en\nb,a\n",
    "bare.csv": "a one,b two\n",
    "p.jsonl": '{"hi": "b", "en": "a"}\n',
}


@pytest.mark.parametrize("columns", ["", "en,hi", "1,2", "en,fr"])
@pytest.mark.parametrize("name", KINDS)
def test_of_many_kinds_at_once_each_is_read_or_named(write, name, columns):
    """The same columns are asked of all files: there, or refused with the name of the file."""
    path = write(KINDS[name], name)
    named = {"head.tsv": [(2, "a", "b")], "p.csv": [(2, "a", "b")], "p.jsonl": [(1, "a", "b")]}
    numbered = {"plain.tsv": [(1, "a", "b")], "bare.csv": [(1, "a one", "b two")]}
    if columns == "en,hi" and name in named:
        assert rows(path, "", columns) == named[name]
    elif columns == "1,2" and name in numbered:
        assert rows(path, "", columns) == numbered[name]
    elif name.endswith("tsv") and columns in ("", "1,2"):
        assert rows(path, "", columns)[-1][1:] == ("a", "b")
    elif columns == "" and name in ("p.csv", "p.jsonl"):
        assert rows(path)[0][1:] == ("b", "a")
    else:
        words = refusal(path, "", columns)
        assert words.startswith(f"{path}, line 1: ")
        if columns == "1,2" and name == "p.jsonl":
            assert "names, not numbers: hi, en" in words


@pytest.mark.parametrize(
    "text", ['en,hi\na,b\n"c,d\ne,f\n', 'en,hi\na,b\n"c"x,d\n', 'en,hi\na,b\n"' + "x" * 200_000 + '",d\n']
)
def test_quotes_that_do_not_match(write, text):
    path = write(text, "p.csv")
    words = refusal(path)
    assert words.startswith(f"{path}, line 3: this row cannot be read (")
    assert "is there a quote missing" in words


# ---- JSON lines


def test_json_lines_by_hand(write):
    path = write(
        '\ufeff{"en": "I\\u00a0go", "hi": "मैं"}\n\n{"hi": "ख", "en": "b", "more": [1]}\r\n{"en": null, "hi": "x"}',
        "p.jsonl",
    )
    assert rows(path) == [(1, "I\u00a0go", "मैं"), (2, "", ""), (3, "b", "ख"), (4, "", "x")]


@pytest.mark.parametrize(
    ("record", "columns", "cells"),
    [
        ({"hi": "a", "en": "b"}, "", ("a", "b")),
        ({"target": "a", "source": "b"}, "", ("b", "a")),
        ({"id": 7, "score": 0.5, "hi": "a", "en": "b"}, "", ("a", "b")),
        ({"id": "7", "src": "a", "tgt": "b"}, "", ("a", "b")),
        ({"id": "7", "hi": "a", "en": "b"}, "en,hi", ("b", "a")),
        ({"translation": {"en": "a", "hi": "b"}}, "en,hi", ("a", "b")),
        ({"translation": {"en": "a", "hi": "b"}}, "hi,en", ("b", "a")),
        ({"id": "7", "translation": {"en": "a", "hi": "b"}}, "", ("a", "b")),
        ({"1": "a", "2": "b"}, "2,1", ("b", "a")),
    ],
)
def test_json_fields(write, record, columns, cells):
    assert rows(write(json.dumps(record), "p.jsonl"), "", columns) == [(1, *cells)]


GOOD = '{"en": "a", "hi": "b"}\n'


@pytest.mark.parametrize(
    ("text", "columns", "words"),
    [
        (GOOD + '{"en": "a"\n', "", """line 2: this is not JSON (Expecting ',' delimiter, column 11): '{"en": "a"'"""),
        (
            "a\tb\n",
            "",
            "line 1: this is not JSON (Expecting value, column 1): 'a\tb'; expected an object on each line",
        ),
        *(
            (
                text,
                "",
                ("line 1: ", "expected an object on each line", "jq -c '.[]'"),
            )
            for text in ('[{"en": "a", "hi": "b"}, {"en": "c", "hi": "d"}]', "[\n" + GOOD + "]\n", '[["a", "b"]]', "[")
        ),
        ('["a", "b"]', "", 'line 1: expected an object such as {"source": "…", "target": "…"}, found: ["a", "b"]'),
        (GOOD + '{"en": "a", "id": 3}', "", "line 2: there is no field 'hi', only en, id"),
        (GOOD + "{}", "", "line 2: there is no field 'en', only an empty object"),
        (GOOD + '{"en": "a", "hi": 5}', "", "line 2: field 'hi' is 5, expected a string"),
        (
            GOOD + '{"en": "\\ud83d", "hi": "b"}',
            "",
            ("line 2: field 'en' ", "\\ud83d", "not text"),
        ),
        (GOOD, "en,hin", "line 1: there is no field 'hin', only en, hi. Did you mean 'hi'?"),
        ('{"a": {"en": "x"}, "b": {"hi": "y"}}', "en,hi", ("line 1: ", "en and hi", "one object")),
        (
            '{"id": "1", "en": "a", "hi": "b"}',
            "",
            ("line 1: ", "id, en, hi", "columns='en,hi'"),
        ),
        ('{"id": 1}', "", "line 1: no field holds a string"),
        (
            '{"t": {"en": "a", "hi": "b"}}\n{"t": "x"}',
            "",
            "line 2: field 't' holds no object, expected one with the fields en, hi",
        ),
        (
            GOOD.encode() + b'{"en": "\xff"}',
            "",
            "line 2: byte 9 is 0xff, which is not UTF-8; convert the file to UTF-8 first",
        ),
    ],
)
def test_wrong_json(write, text, columns, words):
    path = write(text, "p.jsonl")
    check_facts(refusal(path, "", columns), path, words)


def test_a_number_too_long_for_python_is_not_read(write):
    path = write('{"en": ' + "1" * 5000 + "}", "p.jsonl")
    assert refusal(path).startswith(f"{path}, line 1: this is not JSON (")


def test_escaped_letters_are_whole_again(write):
    assert rows(write('{"en": "\\ud83d\\ude00", "hi": "\\u092e"}', "p.jsonl")) == [(1, "😀", "म")]


# ---- parallel files


def test_parallel_by_hand(write):
    x, y = write("\ufeffa\r\n\nb\n c\nd\te\n", "x.csv"), write(gzip.compress(b"1\n\n\n3 \n4\n"), "y.txt")
    assert rows(x, target=y) == [(1, "\ufeffa\r", "1"), (2, "", ""), (3, "b", ""), (4, " c", "3 "), (5, "d\te", "4")]
    assert next(sides(PairFile(x, target=y).rows())) == ("a", "1")


@pytest.mark.parametrize(("short", "long"), [(2, 3), (0, 1), (1, 10)])
def test_parallel_files_of_unequal_length(write, short, long):
    a, b = write("a\n" * short, "a.txt"), write("b\n" * long, "b.txt")
    words = (
        f"{a} has {short} lines but {b} has {long}; line {short + 1} of {b} has no partner. "
        "Parallel files need the same number of lines"
    )
    assert refusal(a, target=b) == words
    assert refusal(b, target=a) == words


# ---- which format, where from, what it is called


@pytest.mark.parametrize(
    ("name", "format_", "text"),
    [
        ("p.tsv", "", "x\ty\n"),
        ("p.txt", "", "x\ty\n"),
        ("p", "", "x\ty\n"),
        ("p.CSV", "", "en,hi\nx,y\n"),
        ("p.csv.gz", "", "en,hi\nx,y\n"),
        ("p.ndjson", "", '{"en": "x", "hi": "y"}'),
        ("p.json", "", '{"en": "x", "hi": "y"}'),
        ("p.jsonl.gz", "", '{"en": "x", "hi": "y"}'),
        ("p.csv", "tsv", "x\ty\n"),
        ("p.txt", "csv", "en,hi\nx,y\n"),
        ("p.tsv", "jsonl", '{"en": "x", "hi": "y"}'),
    ],
)
@pytest.mark.parametrize("zipped", [False, True])
def test_format_by_name_or_by_option(write, name, format_, text, zipped):
    content = gzip.compress(text.encode()) if zipped else text.encode()
    assert [row[1:] for row in rows(write(content, name), format_)] == [("x", "y")]


@pytest.mark.parametrize("zipped", [False, True])
@pytest.mark.parametrize(("format_", "text"), [("", "x\ty\n"), ("jsonl", '{"en": "x", "hi": "y"}')])
def test_stdin(monkeypatch, format_, text, zipped):
    content = gzip.compress(text.encode()) if zipped else text.encode()
    stdin = io.TextIOWrapper(io.BytesIO(content))
    monkeypatch.setattr(sys, "stdin", stdin)
    assert rows("-", format_) == [(1, "x", "y")]
    assert not stdin.closed


def test_faults_of_stdin_name_it(monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"a\tb\nc\n")))
    assert refusal("-").startswith("standard input, line 2: expected 2 columns")
    monkeypatch.setattr(sys, "stdin", None)
    assert refusal("-") == "standard input: it is closed"


@pytest.mark.parametrize("name", ["p.tsv", "p.csv", "p.jsonl"])
def test_files_that_cannot_be_read(write, tmp_path, name):
    assert refusal(str(tmp_path / name)) == f"{tmp_path / name}: there is no such file"
    assert refusal(str(tmp_path)).endswith("this is a folder, expected a file of sentences")
    path = write(gzip.compress(b"a\tb\n")[:-12], name)
    assert refusal(path).startswith(f"{path}: this gzip file is broken or cut short (")
    assert rows(write("", name)) == []
    assert rows(write("\ufeff", name)) in ([], [(1, "", "")])


def test_names():
    assert PairFile("data/pairs.tsv.gz").name == "pairs.tsv.gz"
    assert PairFile("-").name == "stdin"
    assert PairFile("-").full_name == "standard input"
    assert PairFile("a/x.en", target="a/x.hi").name == "x.en"
    assert PairFile("a/x.en", target="a/x.hi").full_name == "a/x.en and a/x.hi"


def test_settings_that_cannot_be():
    with pytest.raises(ConfigError, match="unknown format 'json'; choose one of csv, jsonl, tsv. Did you mean 'jsonl'"):
        PairFile("x", "json")
    with pytest.raises(ConfigError, match="source and target cannot both come from standard input"):
        PairFile("-", target="-")
    for columns in (",", "1", "1,", "0,1", "2,0"):
        with pytest.raises(ConfigError) as caught:
            PairFile("x", columns=columns)
        how = "two numbers from 1, or two names, source then target, such as 2,1 or en,hi"
        assert str(caught.value) == f"columns are '{columns}', expected {how}"


def test_more_columns_are_references(write):
    file = PairFile(write("a\tb\tc\n\n"), columns="1,3,2")
    assert list(file.cells()) == [(1, ("a", "c", "b")), (2, ("", "", ""))]
    with pytest.raises(ConfigError, match="columns are '1,3,2', expected two"):
        next(file.rows())
    path = write('{"t": {"en": "a", "hi": "b", "fr": null}}', "p.jsonl")
    assert list(PairFile(path, columns="fr,en,hi").cells()) == [(1, ("", "a", "b"))]
    assert list(PairFile(write("en,hi,fr\na,b,c\n", "p.csv"), columns="fr,en,hi").cells()) == [(2, ("c", "a", "b"))]


def test_a_pair_file_goes_to_other_processes():
    file = PairFile("x.csv", "csv", "en,hi", "")
    assert pickle.loads(pickle.dumps(file)) == file


def test_pairs_in_memory():
    assert list(PairList([("a", "b"), ("c ", "d")]).rows()) == [Raw(1, "a", "b"), Raw(2, "c ", "d")]
    with pytest.raises(DataError, match="pair 2 is \\('a',\\), expected two strings: a sentence and its translation"):
        list(PairList([("a", "b"), ("a",)]).rows())
    with pytest.raises(DataError, match="pair 1 is \\('a', None\\), expected two strings"):
        list(PairList([("a", None)]).rows())


# ---- whatever the text

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
CELL = st.one_of(TEXT, st.sampled_from(['"', ",", "\n", "\r\n", "a\tb", "मैं", "\ufeff", "\u2028", ";"]))


@given(st.lists(st.tuples(CELL, CELL)))
def test_csv_and_json_lines_come_back(tmp_path_factory, pairs):
    folder = tmp_path_factory.mktemp("round")
    with (folder / "p.csv").open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["source", "target"])
        writer.writerows(pairs)
    (folder / "p.jsonl").write_text(
        "".join(json.dumps({"source": x, "target": y}, ensure_ascii=bool(len(x) % 2)) + "\n" for x, y in pairs),
        encoding="utf-8",
    )
    expected = [("", "") if not (x + y).strip() else (x, y) for x, y in pairs]  # white space alone is a blank line
    found = rows(str(folder / "p.csv"))
    assert [row[1:] for row in found] == expected
    starts, line = [], 2
    for x, y in pairs:
        starts.append(line)
        line += 1 + (x + y).count("\n")
    assert [row[0] for row in found] == starts
    assert rows(str(folder / "p.jsonl")) == [(number, *pair) for number, pair in enumerate(pairs, 1)]


SIDE = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\t\n"), max_size=8)


@given(st.lists(st.tuples(SIDE, SIDE)))
def test_tsv_and_parallel_files_come_back(tmp_path_factory, pairs):
    folder = tmp_path_factory.mktemp("round")
    (folder / "p.tsv").write_bytes("".join(f"{x}\t{y}\n" for x, y in pairs).encode())
    for name, number in (("x", 0), ("y", 1)):
        (folder / name).write_bytes("".join(pair[number] + "\n" for pair in pairs).encode())
    expected = [(number, *pair) for number, pair in enumerate(pairs, 1)]
    assert rows(str(folder / "x"), target=str(folder / "y")) == expected
    blank = [f"{x}\t{y}".strip() in ("", "\ufeff") for x, y in pairs]
    assert rows(str(folder / "p.tsv")) == [
        (number, "", "") if nothing else (number, *pair)
        for number, (pair, nothing) in enumerate(zip(pairs, blank, strict=True), 1)
    ]

"""Gold files: both forms, both bases, sure and possible, and errors with the line."""

import pytest

from heedful.alignment import join_links, parse, read_gold, score, text
from heedful.errors import ConfigError, DataError

LENGTHS = [(3, 2), (2, 2), (1, 0)]


def test_a_line_for_each_pair():
    gold = read_gold(["0-0 2p1 1?1", "1-1 ", ""], LENGTHS)
    assert gold.sure == [parse("0-0"), parse("1-1"), frozenset()]
    assert gold.possible == [parse("0-0 2-1 1-1"), parse("1-1"), frozenset()]
    assert gold.left_out == 0
    assert read_gold(["1-1 3p2 2p2", "2-2", ""], LENGTHS, base=1) == gold


def test_a_line_for_each_link():
    lines = ["1 0 0 S", "1 2 1 P", "", "2 1 1", "1 1 1 P 0.5"]
    gold = read_gold(lines, LENGTHS)
    assert gold == read_gold(["0-0 2p1 1p1", "1-1", ""], LENGTHS)
    assert read_gold(["1 1 1 S", "2 2 2 S", "1 3 2 P", "0001 2 2 P"], LENGTHS, base=1) == gold


def test_what_is_sure_is_possible_even_if_it_is_listed_twice():
    gold = read_gold(["0-0 0p0"], [(1, 1)])
    assert gold.sure == gold.possible == [parse("0-0")]
    assert score([parse("0-0")], gold.sure, gold.possible).error_rate == 0


@pytest.mark.parametrize(
    ("lines", "base", "message"),
    [
        (["0-0", "0-2", ""], 0, r"g, line 2: link '0-2' is outside .* source words 0 to 1 and target words 0 to 1"),
        (["0-0", "1-1", ""], 1, r"g, line 1: link '0-0' is outside .* words 1 to 3 .* is the file counted from 0\?"),
        (["3-1", "1-1", ""], 0, r"g, line 1: link '3-1' .* is the file counted from 1\?"),
        (["9-1", "1-1", ""], 0, r"g, line 1: link '9-1' .* words 0 to 2 .*; are these its sentences\?"),
        (["0-3", "1-1", ""], 0, r"g, line 1: link '0-3' .*; are these its sentences\?"),
        (["", "", "0p0"], 0, r"g, line 3: .* source words 0 to 0 and no target words"),
        (["1 0 0 S", "2 5 0 P"], 0, r"g, line 2: link '2 5 0 P' is outside"),
        (["1 0 0 S", "4 0 0 S"], 0, r"g, line 2: there is no sentence pair 4, only 1 to 3"),
        (["1 0 0 S", "0 0 0 S"], 0, r"g, line 2: there is no sentence pair 0"),
        (["1 0 0 S", "1-1"], 0, r"g, line 2: expected links .* found '1-1'"),
        (["0-0", "0-x", ""], 0, r"g, line 2: expected links .* found '0-x'"),
        (["0-0", "1-1"], 0, r"g has 2 lines but there are 3 sentence pairs"),
    ],
)
def test_what_is_wrong_is_said_with_its_line(lines, base, message):
    with pytest.raises(DataError, match=message):
        read_gold(lines, LENGTHS, base=base, name="g")


def test_swapped_sides_are_told_from_another_base():
    lengths = [(4, 2), (2, 5)]
    swapped = "source and target seem to be swapped: all 4 links fit if each is read as target-source"
    for lines, base in ((["0-3 1-0", "4-1 0-0"], 0), (["1-4 2-1", "5-2 1-1"], 1)):
        with pytest.raises(DataError, match=rf"g, line 1: link .* is outside of its sentences, .*; {swapped}$"):
            read_gold(lines, lengths, base=base, name="g")
    with pytest.raises(
        DataError, match=rf"10 of 20 links are outside of their sentences; {swapped.replace('4', '20')}"
    ):
        read_gold(["0-3 1-0", "4-1 0-0"] * 5, lengths * 5, lenient=True)
    # One link that fits neither way, or all links fit from 1 as well: then it is something else.
    for lines in (["0-3 9-0", "4-1 0-0"], ["2-2 3-1", "2-2"]):
        with pytest.raises(DataError, match=r"\?$"):
            read_gold(lines, lengths)


def test_lenient_counts_what_it_leaves_out():
    gold = read_gold(["0-0 3-1", "1-1 0-2 1p9", ""], LENGTHS, lenient=True)
    assert gold == ([parse("0-0"), parse("1-1"), frozenset()],) * 2 + (3,)
    with pytest.raises(DataError, match="line 1: expected links"):
        read_gold(["?", "", ""], LENGTHS, lenient=True)


def test_lenient_is_not_for_a_wrong_base():
    """Counted from 1, the last words are outside; a few bad links are not much of 1,000."""
    lines, lengths = ["1-1 2-2 3-3 4-4"] * 250, [(4, 4)] * 250
    with pytest.raises(DataError, match=r"250 of 1,000 links are outside .* from 1 it would be 0: that is the likely"):
        read_gold(lines, lengths, lenient=True)
    assert read_gold(lines, lengths, base=1, lenient=True).left_out == 0
    with pytest.raises(DataError, match=r"250 of 1,000 links .* counted from 1 here, and from 0 it would be 0"):
        read_gold(["0-0 1-1 2-2 3-3"] * 250, lengths, base=1, lenient=True)
    for bad in (20, 21):
        some = [line.replace("4-4", "9-9") if i < bad else line for i, line in enumerate(lines)]
        if bad == 20:
            assert read_gold(some, lengths, base=1, lenient=True).left_out == 20
        else:
            with pytest.raises(DataError, match="21 of 1,000 links .* do they belong to these sentences"):
                read_gold(some, lengths, base=1, lenient=True)


def test_other_bases_are_refused():
    with pytest.raises(ConfigError, match="base is 2"):
        read_gold([""], [(0, 0)], base=2)


def test_lines_may_begin_with_an_id():
    gold = read_gold(["0-0 2p1 1?1", "1-1 ", ""], LENGTHS)
    for lines in (["0\t0-0 2p1 1p1", "1\t1-1", "2\t"], ["2", "text 7\t0-0"], ["a\t", "a\t0-0\t1-1"]):
        read = read_gold(lines, len(lines))
        assert read.possible[0] == (gold.possible[0] if len(lines) == 3 else frozenset())
    assert read_gold(["7\t1-1 3p2 2p2", "7\t2-2", "8"], LENGTHS, base=1) == gold
    assert read_gold(["0-0\t1-1"], [(2, 2)]).sure == [parse("0-0 1-1")], "a tab between links is a space"
    for lines, message in (
        (["1\t0-0", "1-1", ""], "g, line 2: expected an id, a tab and links, .* found '1-1'"),
        (["1\t0-0", "2 1-1", ""], "g, line 2: expected an id, a tab and links, .* found '2 1-1'"),
        (["1\t0-0", "2\t1-1 x", ""], "g, line 2: expected links .* found 'x'"),
        (["1", "1-1", ""], "g, line 1: expected links .* found '1'"),
        (["1", "2", "3"], "g, line 1: expected links .* found '1'"),
        (["0-0", "2\t1-1", ""], "g, line 2: expected links .* found '2'"),
    ):
        with pytest.raises(DataError, match=message):
            read_gold(lines, LENGTHS, name="g")


def test_lines_may_be_json():
    gold = read_gold(["0-0 2-1", "1-1", ""], LENGTHS)
    lines = ['{"source": "a b c", "links": [[0, 0], [2, 1, 0.75]]}', '{"alignment": [[1, 1]]}', '{"links": []}']
    assert read_gold(lines, LENGTHS) == gold
    assert read_gold([lines[1], "", "2-2"], [(2, 2), (0, 0), (2, 2)], base=1).sure[0] == parse("0-0")
    for line in (
        '{"links": [[0]]}',
        '{"links": [[0, true]]}',
        '{"links": [[0, -1]]}',
        '{"words": []}',
        '{"links": 3}',
        "{",
    ):
        with pytest.raises(DataError, match="g, line 2: expected a JSON object with links or alignment"):
            read_gold([lines[0], line, ""], LENGTHS, name="g")
    with pytest.raises(DataError, match="g, line 1: link '3-0' is outside"):
        read_gold(['{"links": [[3, 0]]}', "", ""], LENGTHS, name="g")


def test_only_the_number_of_pairs_may_be_known():
    assert read_gold(["0-0 9p9", ""], 2).possible == [parse("0-0 9-9"), frozenset()]
    assert read_gold(["1 1 9 S", "2 4 4 P"], 2, base=1).possible == [parse("0-8"), parse("3-3")]
    with pytest.raises(DataError, match="g, line 1: words are counted from 1 here, found '0-1'"):
        read_gold(["0-1 4-4", ""], 2, base=1, name="g")
    assert read_gold(["0-1 4-4", ""], 2, base=1, lenient=True) == ([parse("3-3"), frozenset()],) * 2 + (1,)
    with pytest.raises(DataError, match="g has 1 line but there are 2 sentence pairs"):
        read_gold(["0-1 4-4"], 2, name="g")


def test_links_of_two_directions_are_joined():
    def joined(*sides, **how):
        return [text(links) for links in join_links(*sides, **how)]

    forward, reverse = ["0-0 1-1 1-2", "", "3\t0p0"], ["0-0:0.9 2-1", "1-0", '{"links": [[0, 0]]}']
    assert joined(forward[:2], reverse[:2], symmetry="union") == ["0-0 1-1 1-2 2-1", "1-0"]
    assert joined(forward[:2], reverse[:2], symmetry="union", flipped=True) == ["0-0 1-1 1-2", "0-1"]
    assert joined(forward[:2], reverse[:2]) == ["0-0 1-1 1-2 2-1", "1-0"]
    assert joined(forward[2:], reverse[2:], symmetry="intersection") == ["0-0"]
    assert joined([], []) == []
    for sides, message in (
        ((["0-0"] * 3, ["0-0"]), "forward has 3 lines but reverse has 1; "),
        ((["0-0"], ["0-0", "", ""]), "reverse has 3 lines but forward has 1; "),
        ((["0-0", "0-0"], ["0-0", "0=0"]), "reverse, line 2: expected links .* found '0=0'"),
        ((["0-0"], ["1 0 0 S"]), "reverse, line 1: expected links .* found '1'"),
    ):
        with pytest.raises(DataError, match=message):
            joined(*sides)
    with pytest.raises(ConfigError, match="unknown symmetry 'grow'"):
        joined([], [], symmetry="grow")

"""Tags go with their words: cases worked by hand, and what holds for every text, tag and link."""

from __future__ import annotations

import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from heedful.markup import MarkupRun, carry, parse
from heedful.markup.parse import DEEPEST, STAYS
from heedful.markup.tokenizer import Kind, tokenize
from heedful.trace import Word
from heedful.trace.alignment import Alignment, JoinedAlignment, Link


def words(text: str) -> tuple[Word, ...]:
    return tuple(Word(m[0], m.start(), m.end(), i, i + 1) for i, m in enumerate(re.finditer(r"\S+", text)))


def linked(source: str, target: str, links: str) -> Alignment:
    """The alignment of two texts by Pharaoh's links; the weights are 1 where there is one."""
    x, y = words(source), words(target)
    pairs = sorted((int(s), int(t)) for s, _, t in (link.partition("-") for link in links.split()))
    weights = np.zeros((len(y), len(x)), dtype=np.float32)
    for s, t in pairs:
        weights[t, s] = 1
    return Alignment(x, y, tuple(Link(s, t, 1.0) for s, t in pairs), weights)


def carried(source: str, target: str, links: str) -> str:
    marked = parse(source)
    return carry(marked, linked(marked.text, target, links), target)


@pytest.mark.parametrize(
    ("source", "target", "links", "expected"),
    [
        # Words that changed places take their tags with them, without the full stop.
        (
            "I <b>see</b> the <i>house</i>.",
            "मैं घर देखता हूँ।",
            "0-0 1-2 1-3 3-1",
            "मैं <i>घर</i> <b>देखता हूँ</b>।",
        ),
        # What stood around everything does so again.
        ("<p>I see.</p>", "मैं देखता हूँ।", "0-0 1-1", "<p>मैं देखता हूँ।</p>"),
        # A word between two words of a tag, with no links of its own, is in it.
        ("<b>a b</b> c", "A X B C", "0-0 1-2 2-3", "<b>A X B</b> C"),
        # Words that went apart: the tag is written twice, attributes and all.
        ('<a href="x">a b</a> c', "A C B", "0-0 1-2 2-1", '<a href="x">A</a> C <a href="x">B</a>'),
        # Tags in tags stay in them.
        ("<b>a <i>b</i></b> c", "B A C", "0-1 1-0 2-2", "<b><i>B</i> A</b> C"),
        # Two tags whose words became one.
        ("<b>a</b> <i>b</i>", "AB", "0-0 1-0", "<b><i>AB</i></b>"),
        # A placeholder is not read by the model, and stands where its neighbour went, with its spaces.
        ("Hello {name}, hello!", "NA, NO!", "0-0 1-1", "NA {name}, NO!"),
        ("{n} houses", "घर", "0-0", "{n} घर"),
        ("<b>{n}</b> houses", "घर", "0-0", "<b>{n}</b> घर"),
        ("a<wbr>b c", "A C", "0-0 1-1", "<wbr>A C"),
        ("a <img src=x> b", "A B", "0-0 1-1", "A <img src=x>B"),
        # One that stood last stays last, and one that stood first goes with its word, if that went anywhere.
        ("मैं <b>खाना</b> हूँ {name}", "I am eating", "0-0 1-2 2-1", "I am <b>eating</b> {name}"),
        ("मैं खाना हूँ {name}।", "I am eating.", "0-0 1-2 2-1", "I am eating {name}."),
        ("मैं खाना हूँ {a}{b} ।", "I am eating .", "0-0 1-2 2-1 3-3", "I am eating {a}{b} ."),
        ("मैं खाना हूँ{name}", "I am eating", "0-0 1-2 2-1", "I am{name} eating"),
        ("{name} ने खाना खाया", "ate food", "1-1 2-0", "{name} ate food"),
        ("{n} घर यहाँ", "here houses", "0-1 1-0", "here {n} houses"),
        # Blocks stay where they are, as they were written, and what is in one stays in it, whatever the links are.
        ("a<br>b", "A\nB", "0-0 1-1", "A<br>B"),
        ("a<BR />b", "A\nB", "0-1 1-0", "A<BR />B"),
        (
            "<p>x <b>y <i>z</b> u</i> v</p> <br>1 < 2 {x}",
            "X Z Y U V\n1 < 2",
            "0-0 1-2 2-1 3-3 4-4 5-2 6-1 7-7",
            "<p>X <b><i>Z</i> Y</b> <i>U</i> V</p> <br>1 &lt; 2 {x}",
        ),
        (
            '<ul class="a">\n  <li> <b>a</b> b </li>\n  <li>c</li>\n</ul>',
            " B A \nC",
            "0-1 1-0 2-2",
            '<ul class="a">\n  <li> B <b>A</b> </li>\n  <li>C</li>\n</ul>',
        ),
        ("<td>{n}</td><td>a {n}</td>", "A", "0-0", "<td>{n}</td><td>A {n}</td>"),
        # A tag around blocks is in each that has words; one that is empty is written once.
        ("<b>a<br> <br>b</b> c", "A\nC B", "0-0 1-2 2-1", "<b>A</b><br> <br>C <b>B</b>"),
        # One around blocks stays, with them, and so do blocks that were never closed, never opened, and overlapping.
        ("<a href=x><div>a</div></a>", "A", "0-0", "<a href=x><div>A</div></a>"),
        ("<b><p></p></b>a", "A", "0-0", "<b><p></p></b>A"),
        ("<ul><li>a<li>b</ul>c", "A\nB\nC", "0-0 1-1 2-2", "<ul><li>A<li>B</ul>C"),
        ("<p>a<P>b", "A\nB", "0-0 1-1", "<p>A<P>B"),
        (
            "<table><tr><td>a<td>b<tr><th>c</table>",
            "A\nB\nC",
            "0-0 1-1 2-2",
            "<table><tr><td>A<td>B<tr><th>C</table>",
        ),
        ("a</p>b<div>c", "A\nB\nC", "0-0 1-1 2-2", "A</p>B<div>C"),
        ("<div><p>a</div>b</p>", "A\nB", "0-0 1-1", "<div><p>A</div>B</p>"),
        # An inline tag that is closed in another block, or not at all, stays, and so do the others of its paragraph.
        ("<p>a <b>b</p><p>c</b> d", "A\nB\nC\nD", "0-3 1-2 2-1 3-0", "<p>A<b>B</p><p>C</b>D"),
        ("<p><i>a</i> b <b>c</p>d", "A\nB\nC\nD", "", "<p><i>A</i>B<b>C</p>D"),
        ("<a href=1>a <a href=2>b</a> c</a>", "A\nB\nC", "", "<a href=1>A<a href=2>B</a>C</a>"),
        # Lines are not kept: every block gets as many words as are linked to it.
        ("<p>a b</p><p><i>c</i></p>", "C A B", "0-1 1-2 2-0", "<p>C A </p><p><i>B</i></p>"),
        # Marks that are tagged, and marks of the text that are none of HTML's.
        ("a<b>!</b>", "A!", "0-0", "A<b>!</b>"),
        ("a &lt; b &amp; c", "A < B & C", "0-0 1-1 2-2 3-3 4-4", "A &lt; B &amp; C"),
        # A placeholder has nothing in it that HTML reads.
        ("<i>a {</i>} b</i>", "A B", "0-0 2-1", "<i>A</i> B"),
        ("a {<b>} b", "A B", "0-0 2-1", "A <b>B</b>"),
        # Broken tags: never closed, never opened, overlapping, and what is none.
        ("a <b>b", "A B", "0-0 1-1", "A <b>B</b>"),
        ("a</b> b", "A B", "0-0 1-1", "A B"),
        ("<b>a <i>b</b> c</i>", "A B C", "0-0 1-1 2-2", "<b>A <i>B</i></b> <i>C</i>"),
        ("<b>a <q>b</b> c</q>", "A B C", "0-0 1-1 2-2", "<b>A <q>B</q></b> C"),  # only formatting begins again
        ("<q>a <b>b</q> c</b>", "A B C", "0-0 1-1 2-2", "<q>A <b>B</b></q> <b>C</b>"),
        # No link stands in a link: the second would end the first.
        ("<a href=1>a</a> <a href=2>b</a>", "AB", "0-0 1-0", "<a href=1>AB</a><a href=2></a>"),
        # A tag ends where HTML says so, and is never looked into.
        (
            "<p title=\"<img src=x onerror=alert(1)>\">a <b title='>'>b</b></p>",
            "B A",
            "0-1 1-0",
            "<p title=\"<img src=x onerror=alert(1)>\"><b title='>'>B</b> A</p>",
        ),
        ('<a href="x"title="y">a</a foo> b', "B A", "0-1 1-0", 'B <a href="x"title="y">A</a>'),
        ("<a href=x?y=z&amp;u>a</a> b", "B A", "0-1 1-0", "B <a href=x?y=z&amp;u>A</a>"),
        ("<!DOCTYPE html><p>a", "A", "0-0", "<!DOCTYPE html><p>A"),
        ("a <?php echo $x->y; ?> b", "A B", "0-0 1-1", "A <?php echo $x->y; ?>B"),
        ("<![CDATA[a]]> b", "B", "0-0", "<![CDATA[a]]>B"),
        ("a <x id='1'/> b", "B A", "0-1 1-0", "<x id='1'/>B A"),
        ("a <svg><g/></svg> b", "B A", "0-1 1-0", "<svg><g/></svg>B A"),
        ("<title>a <b> &lt;</title>", "A <b> <", "0-0", "<title>A &lt;b&gt; &lt;</title>"),
        ("<pre>\n a</pre>", " A", "0-0", "<pre>\n A</pre>"),
        # What has no end: a tag is text, all else stays as it is, and is not closed.
        ('a <b title="<i>', 'A <B TITLE="<I>', "", 'A &lt;B TITLE="&lt;I&gt;'),
        ("a <script>alert(1)", "A", "0-0", "A<script>alert(1)"),
        ("a <!-- b", "A", "0-0", "A<!-- b"),
        ("1 < 2 > a", "1 < 2 > A", "0-0 1-1 2-2 3-3 4-4", "1 &lt; 2 &gt; A"),
        ("a <script>if (a < b) {c}</script> b", "A\nB", "0-0 1-1", "A<script>if (a < b) {c}</script>B"),
        # A tag whose word has no link is not lost.
        ("<b>a</b> b", "B C", "1-0", "<b>B</b> C"),
    ],
)
def test_by_hand(source: str, target: str, links: str, expected: str) -> None:
    assert carried(source, target, links) == expected


def test_a_text_is_read_without_its_tags() -> None:
    marked = parse("see {name}, <b>see</b>  {a} {b}.")
    assert marked.text == "see, see ."  # one space of two before a placeholder goes, not all that a person wrote
    assert [(p.raw, p.at, p.spaces) for p in marked.runs[0].points] == [
        ("{name}", 3, (True, False)),
        ("{a}", 9, (True, True)),
        ("{b}", 9, (True, False)),
    ]
    assert parse("<p>a</p> <p>b</p><td>c<p>  </p>").text == "a\nb\nc"
    assert parse("a<wbr>b").text == "ab"


def test_without_links() -> None:
    marked = parse("<p><b>a</b> {n} c</p>")
    assert carry(marked, None, "A C") == "<p>A C<b></b> {n}</p>"
    assert carry(parse("<b></b>"), None, "") == "<b></b>"
    assert carry(parse("<p><i>a</i> {n}</p><p>b</p>"), None, "A\nB") == "<p><i>A</i> {n}</p><p>B</p>"
    assert carry(parse("<p>a</p><p>b</p>"), None, "A B") == "<p>A B</p><p></p>"


def test_many_tags_inside_each_other_stay() -> None:
    def deep(count: int) -> str:
        return "<b>" * count + "a" + "</b>" * count + " b"

    assert carried(deep(DEEPEST), "B A", "0-1 1-0") == "B " + "<b>" * DEEPEST + "A" + "</b>" * DEEPEST
    assert parse(deep(DEEPEST + 1)).text == "a\n b"
    assert carried(deep(5000), "A\nB", "0-0 1-1") == "<b>" * 5000 + "A" + "</b>" * 5000 + "B"
    assert parse("<li>a" * 300).text == "\n".join("a" * 300)


def test_a_word_in_many_tags_has_no_more_than_may_stand_in_each_other() -> None:
    out = carried("<b>a</b>" * 500, "A", "0-0")
    assert out.count("<b>") == 500
    assert "<b>" * DEEPEST + "A" in out
    assert "<b>" * (DEEPEST + 1) not in out


TAGS = ["b", "i", "a", "span", "p", "br", "B", "div"]
PIECES = st.one_of(
    st.sampled_from(TAGS).map(lambda t: f"<{t}>"),
    st.sampled_from(TAGS).map(lambda t: f"</{t}>"),
    st.sampled_from(
        [
            '<a href="u&amp;v">',
            "<a title='x y'>",
            "<img src=x />",
            "<br/>",
            "{name}",
            "${n}",
            "{{ }}",
            "{{x}}",
            "{<b>}",
            "{</b>}",
            "{&lt;}",
        ]
    ),
    st.sampled_from(
        ["<", ">", "&", "&lt;", "&amp;b", "</", "<b", "< b>", '"', "{", "}", "<1>", "<!", "&#x41;", "</ b>"]
    ),
    st.sampled_from(["<!-->", "<!--->", "<!-- <b> -->", "<!--x--!>", "<!--", "--!>", "-->", "-"]),
    st.text(st.characters(codec="utf-8", exclude_characters="\0\r"), max_size=4),
    st.sampled_from([" ", "  ", "\n", "word", "घर", ".", ", "]),
)


@st.composite
def cases(draw: st.DrawFn) -> tuple[str, str, Alignment]:
    source = "".join(draw(st.lists(PIECES, max_size=24)))
    target = draw(st.lists(st.sampled_from(["A", "b,", "(c)", "घर", "।", "<d>", "&e;", "f"]), max_size=8))
    spaced = "".join(w + draw(st.sampled_from([" ", "  ", "\n"])) for w in target)
    size = len(words(parse(source).text))
    pairs = st.tuples(st.integers(0, max(size - 1, 0)), st.integers(0, max(len(target) - 1, 0)))
    links = draw(st.lists(pairs, max_size=12)) if size and target else []
    return source, spaced, linked(parse(source).text, spaced, " ".join(f"{s}-{t}" for s, t in links))


@given(cases())
def test_nothing_is_gained_and_nothing_lost(case: tuple[str, str, Alignment]) -> None:
    source, target, alignment = case
    marked = parse(source)
    for given_alignment in (alignment, None):
        out = carry(marked, given_alignment, target)
        # What was written is read as the same text, and can be carried on; a placeholder may bring a space.
        again = parse(out)
        points = [point for run in marked.runs for point in run.points]
        if marked.text.strip():
            read, written = "".join(again.text.split()), "".join(target.split()).replace("\0", "\ufffd")
            assert read.replace("\u200b", "") == written  # a zero-width space stands for nothing
        for point in points:
            assert point.raw in out
        # Every tag is there, and none that was not; those that stay are there as often as they were, in the same order.
        for kind in (Kind.START, Kind.COMMENT, Kind.DOCTYPE, Kind.WHOLE):
            assert names(out, kind) == names(source, kind)
        assert stays(out) == stays(source)


def names(source: str, kind: Kind) -> set[str]:
    tokens = (source[t.start : t.end] for t in tokenize(source) if t.kind is kind)
    return {
        re.sub(r"^<!---?>$", "<!---->", re.sub(r"^(<!--.*)--!>$", r"\1-->", raw, flags=re.DOTALL)) for raw in tokens
    }


def stays(source: str) -> list[str]:
    return [source[t.start : t.end] for t in tokenize(source) if t.kind in (Kind.START, Kind.END) and t.name in STAYS]


@given(st.text(max_size=60))
def test_any_text_without_tags_stays_what_it_is(text: str) -> None:
    if re.search(r"[<&{\0]", text) is None:
        marked = parse(text)
        assert (marked.text, marked.after) == (text, "")
        assert marked.runs == (MarkupRun(text, (), ()),)


@given(st.data())
def test_a_word_has_the_tags_of_its_source_words(data: st.DataObject) -> None:
    """Each source word has a tag of its own: a linked target word has those of its links, and such as had no link."""
    x, y = data.draw(st.integers(1, 6)), data.draw(st.integers(1, 6))
    pairs = data.draw(st.sets(st.tuples(st.integers(0, x - 1), st.integers(0, y - 1))))
    source = " ".join(f"<t{s}>a</t{s}>" for s in range(x))
    links = " ".join(f"{s}-{t}" for s, t in sorted(pairs))
    out = carried(source, " ".join(f"Y{t}" for t in range(y)), links)
    lost = set(range(x)) - {s for s, _ in pairs}
    for t in range(y):
        before = out[: out.index(f"Y{t}")]
        around = {s for s in range(x) if before.count(f"<t{s}>") > before.count(f"</t{s}>")}
        mine = {s for s, other in pairs if other == t}
        assert mine <= around
        if mine:
            assert around <= mine | lost


def test_what_is_not_translated_is_kept_whole() -> None:
    source = "a <!-- <b> --> b <SCRIPT x='y'>if (1 < 2) { f() }</script > c <script>"
    marked = parse(source)
    assert [point.raw for point in marked.runs[0].points] == ["<!-- <b> -->"]
    assert [run.before for run in marked.runs] == ["", "<SCRIPT x='y'>if (1 < 2) { f() }</script >"]
    assert marked.after == "<script>"
    assert "line 1, column 63: <script>" in marked.notes[0]


@pytest.mark.parametrize(
    "rest",
    [
        "<plaintext>b <b>c</b>",
        "<svg><p>b</p></svg> c",
        "<math><mi><table></mi></math> c",
        "<select><style><img src=x></style></select> c",
        '<noscript><p title="</noscript><img src=x>"></noscript> c',
        "<template><template>b</template> c",
        "<textarea>b</textarea",
        "<!-- b",
        "<!doctype",
    ],
)
def test_what_can_be_read_in_several_ways_is_kept_to_the_end(rest: str) -> None:
    marked = parse(f"a<br>\n{rest}")
    assert (marked.text, marked.after) == ("a", f"<br>\n{rest}")
    assert "markup, line 2, column " in marked.notes[0]
    assert carry(marked, None, "A") == f"A<br>\n{rest}"


def test_a_frameset_is_kept_whole() -> None:
    source = "a <b>b</b><frameset onload=f()>"
    marked = parse(source)
    assert (marked.text, carry(marked, None, "<x>")) == ("", source)
    assert "<frameset>" in marked.notes[0]


def test_text_that_tags_depend_on_is_never_nothing() -> None:
    # Without it, the link would be in the head of the document.
    source = "<title>a</title>b <b>c</b><link>d"
    assert carry(parse(source), None, "A\n \nD") == "<title>A</title>\u200b<b></b><link>D"
    # A browser opens <b> again before the text in the table, and puts what follows into it.
    source = "<p><b>a</p><table>b<summary>c"
    assert carry(parse(source), None, "A\n\nC") == "<p><b>A</p><table>\u200b<summary>C"
    assert carry(parse("<table><colgroup>a<col>"), None, "") == "<table><colgroup>\u200b<col>"
    assert carry(parse("<p>a</p>b"), None, "A\n") == "<p>A</p>"
    assert carry(parse("<br>"), None, "<i>made up") == "<br>"


@pytest.mark.parametrize(
    ("source", "text", "raw"),
    [
        ("a<!-->b", "ab", "<!---->"),
        ("a<!--->b-->", "ab-->", "<!---->"),
        ("a<!---->b", "ab", "<!---->"),
        ("a<!-- <b> --!>b-->", "ab-->", "<!-- <b> -->"),
        ("a<!----!>b", "ab", "<!---->"),
        ("a<!--x--!-->b", "ab", "<!--x--!-->"),
        ("a<?x--!>b", "ab", "<?x--!>"),
        ("a<!---!>b-->c", "ac", "<!---!>b-->"),
        ("a<!--x->b--->c", "ac", "<!--x->b--->"),
    ],
)
def test_comments_end_where_browsers_end_them(source: str, text: str, raw: str) -> None:
    marked = parse(source)
    assert (marked.text, [point.raw for point in marked.runs[0].points]) == (text, [raw])


def ends_at(rest: str) -> int | None:
    """Where a comment is over, told by the states of the HTML standard (13.2.5.43 to 52), a character at a time."""
    # Of each state: where a dash, a bang and a > lead; everything else leads into the comment. None: it is over.
    states: dict[str, tuple[str, str, str | None]] = {
        "start": ("start dash", "comment", None),
        "start dash": ("end", "comment", None),
        "comment": ("end dash", "comment", "comment"),
        "end dash": ("end", "comment", "comment"),
        "end": ("end", "end bang", None),
        "end bang": ("end dash", "comment", None),
    }
    state = "start"
    for at, character in enumerate(rest, 1):
        following = states[state]["-!>".index(character)] if character in "-!>" else "comment"
        if following is None:
            return at
        state = following
    return None


@given(st.text("-!> a", max_size=12))
def test_comments_end_by_the_standard(rest: str) -> None:
    end = ends_at(rest)
    marked = parse(f"<!--{rest}")
    if end is None:
        assert (marked.text, marked.runs[0].before, len(marked.notes)) == ("", f"<!--{rest}", 1)
    else:
        assert marked.text == rest[end:]
        (point,) = marked.runs[0].points
        assert point.raw.startswith("<!--")
        assert ends_at(point.raw[4:]) == len(point.raw) - 4


def test_sentences_of_a_run_keep_their_ends() -> None:
    source, target = "मैं हूँ {a}. {b} ने खाया.", "am I. he ate."
    marked = parse(source)
    assert marked.text == "मैं हूँ. ने खाया."
    parts = (linked("मैं हूँ.", "am I.", "0-1 1-0"), linked("ने खाया.", "he ate.", "1-1"))
    joined = JoinedAlignment(parts, ((0, 0), (marked.text.index("ने"), target.index("he"))))
    assert carry(marked, joined, target) == "am I {a}. {b} he ate."


@pytest.mark.parametrize(
    "blocks", [["<p>", "</p>"], ["<div>", "<br>", "</div>"], ["<UL id=x>", "<li>", "</li >", "</UL>"]]
)
@given(st.data())
def test_blocks_that_are_whole_stay_as_they_were_written(blocks: list[str], data: st.DataObject) -> None:
    """All but the words is the same, however words are linked: only tags in a run may be repeated."""
    texts = [
        data.draw(st.sampled_from(["", " ", "\n ", "a", "<b>a</b> b ", " a <i>b</i>."])) for _ in range(len(blocks) + 1)
    ]
    source = "".join(text + block for text, block in zip(texts, [*blocks, ""], strict=True))
    marked = parse(source)
    target = marked.text.upper()
    size = len(words(target))
    pairs = st.tuples(st.integers(0, max(size - 1, 0)), st.integers(0, max(size - 1, 0)))
    links = data.draw(st.lists(pairs, max_size=8)) if size else []
    alignment = linked(marked.text, target, " ".join(f"{s}-{t}" for s, t in links))
    for given_alignment in (alignment, None):
        out = carry(marked, given_alignment, target)
        assert re.sub("</?[bi]>", "", out) == re.sub(
            "</?[bi]>", "", re.sub("[ab](?![^<]*>)", lambda m: m[0].upper(), source)
        )


@pytest.mark.parametrize("source", ["w </p> v", "w</p>", "<title>t</title>w</p>v", "<!-- c -->w</P >v", "<html>w</p>v"])
def test_text_before_an_end_that_makes_an_element_does_not_become_empty(source: str) -> None:
    """Without text before it, `</p>` stands before the body of a document, where it makes no <p>."""
    marked = parse(source)
    first = next(run for run in marked.runs if "w" in run.text)
    assert first.needed
    target = "\n".join("" if "w" in line else line for line in marked.text.split("\n"))
    assert "\u200b" in carry(marked, None, target).lower().partition("</p")[0]


@pytest.mark.parametrize("source", ["w </br> v", "w </b> v", "w </div> v", "<p>w </p> v"])
def test_other_ends_need_no_text_before_them(source: str) -> None:
    assert not parse(source).runs[0].needed

"""What parsers make of the source, they make of the output: fuzzed sources, judged by lexbor and by Chromium."""

from __future__ import annotations

import os
import random
import sys
from collections import Counter
from pathlib import Path

import pytest

from heedful.markup import carry, parse

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
import attack_markup
from attack_markup import Case, Generator, Report, cases, translated

lexbor = pytest.importorskip("selectolax.lexbor")
STAYS = frozenset(attack_markup.STAYS.split())
POINTS = ("img", "input", "wbr", "embed", "area", "keygen")


class Shape:
    """The elements that stay, in order, with their ancestors; inline ones, and what goes with words, with theirs."""

    def __init__(self, source: str) -> None:
        self.order: list[tuple[object, ...]] = []
        self.inline: set[tuple[object, ...]] = set()
        self.points: Counter[tuple[object, ...]] = Counter()
        self.text: list[str] = []
        todo = [(lexbor.LexborHTMLParser(source).root, ())]
        while todo:
            node, path = todo.pop()
            if node.tag == "-text":
                self.text.append(node.text_content)
                continue
            if node.tag is None or node.tag.startswith(("-", "!")):  # comments, processing instructions, doctypes
                continue
            label = node.tag, *sorted(node.attributes.items())
            if node.tag in ("svg", "math") or node.tag in POINTS:
                self.points[path, label if node.tag in POINTS else node.html] += 1
                continue
            if node.tag in ("script", "style", "textarea", "xmp", "iframe", "noembed", "noframes", "plaintext"):
                self.order.append((path, label, node.text()))
                continue
            if node.tag in STAYS:
                self.order.append((hash(path), label))
                path = (hash(path), label)
            else:
                self.inline.add((hash(path), label))
            inner = []
            child = node.first_child
            while child is not None:
                inner.append((child, path))
                child = child.next
            todo += reversed(inner)


def fault(case: Case) -> str:
    before, after = Shape(case.source), Shape(case.output)
    if before.order != after.order:
        return "moved"
    if before.points != after.points:
        return "points"
    if after.inline - before.inline:
        return f"gained {after.inline - before.inline}"
    if before.inline - after.inline:
        return f"lost {before.inline - after.inline}"
    return attack_markup.text_fault(case, " ".join(before.text), " ".join(after.text))


def test_lexbor_finds_what_it_should() -> None:
    """The judge is no good if it finds nothing."""
    source = '<p title="<img src=x>">w1x <b>w2x</b></p>'
    assert not fault(Case(True, source, '<p title="<img src=x>">T1X <b>T2X</b></p>', "w1x w2x", "T1X T2X"))
    for output in (
        '&lt;p title="<img src=x>"&gt;T1X <b>T2X</b></p>',
        '<p title="<img src=x>">T1X T2X</p>',
        '<p title="<img src=x>">T1X <b>T2X</b> <i></i></p>',
        '<p title="<img src=x>">T1X <b></b></p>',
        '<b>T2X</b><p title="<img src=x>">T1X</p>',
    ):
        assert fault(Case(True, source, output, "w1x w2x", "T1X T2X")), output


@pytest.mark.parametrize("seed", range(4))
def test_trees_by_lexbor(seed: int) -> None:
    report = Report()
    found = [(case, why) for case in cases(150, seed, report) if (why := fault(case))]
    assert not found, found[0]
    assert not report.faults
    assert report.wild == 75


@pytest.mark.parametrize("piece", [*attack_markup.PIECES, *attack_markup.FOREIGN, *attack_markup.VALUES])
def test_every_odd_piece_between_words(piece: str) -> None:
    generator, pick = Generator(0), random.Random(0)
    for frame in (
        "w0x {} w00x",
        "<p>w0x <b>w00x {} w000x</b> w0000x</p><i>w00000x</i>",
        "<a x={}>w0x</a> w00x <br> w000x",
    ):
        source = frame.replace("{}", generator.filled(piece))
        marked = parse(source)
        target, alignment = translated(marked, pick)
        case = Case(True, source, carry(marked, alignment, target), marked.text, target)
        assert not fault(case), case


@pytest.mark.slow
def test_trees_by_chromium() -> None:
    pytest.importorskip("playwright")
    if not attack_markup.browser_path():
        missing = "there is no chromium on this machine"
        pytest.fail(missing) if os.environ.get("HEEDFUL_BROWSER") == "1" else pytest.skip(missing)
    report = attack_markup.main(300, seed=3, share=0.1)
    assert not report.faults, str(report)
    assert report.called > 0

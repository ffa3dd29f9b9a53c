"""Fuzz the markup code with Chromium's parser as judge: nothing gained, nothing lost, nothing run.

`python benchmarks/attack_markup.py --inputs 10000 --seed 0` makes HTML sources, half of them plain and half wild
(broken tags, quotes, comments, raw text, tables, foreign content, NULs …), carries each through `heedful.markup` with a
translator that permutes, drops and repeats words, writes random links and sometimes HTML of its own, and compares what
Chromium makes of the source and of the output: as a document, in a `<template>`, in a `<div>` with and without scripts,
in a `<td>` and in a `<tr>`. A share of them is also run in frames with scripts, and what was called is counted.

Faults:

- `gained`: an element, with its attributes, that the source does not have under the same ancestors;
- `lost`: an element of the source that the output does not have there;
- `moved`: elements that stay (all but inline ones) in another order or number;
- `text`: words of the translation, or of the source where it is not translated, that are missing, or too many;
- `comment`, `mode`: other comments; quirks mode where there was none;
- `ran`: a script or an event handler ran that does not run in the source;
- `error`: an exception in the markup code.

Ancestors are those that stay: inline elements (`<b>`, `<a>`, `<span>`, unknown ones) go with their words.
Needs Playwright and Chromium.
"""

from __future__ import annotations

import argparse
import random
import re
import shutil
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from heedful.markup import Marked, carry, parse
from heedful.trace import Word
from heedful.trace.alignment import Alignment, Link

INLINE: list[str] = re.findall(r"\S+", "b i a span em strong code u font small s q cite label x-y t:z nobr sub mark tt")
BLOCKS: list[str] = re.findall(
    r"\S+", "p div li ul ol td tr table h1 section blockquote pre dl dt dd form center article body"
)
EMPTY: list[str] = re.findall(r"\S+", "br hr img wbr input area embed")
RAW: list[str] = re.findall(
    r"\S+", "script style textarea title xmp iframe noembed noframes noscript plaintext template"
)
ODD: list[str] = re.findall(
    r"\S+",
    "select option optgroup button object marquee ruby rt svg math foreignObject desc mi mtext annotation-xml caption "
    "colgroup col tbody thead head html frameset frame video source image listing keygen dialog summary",
)
STAYS = (
    "address applet article aside audio base basefont bgsound blockquote body br button canvas caption center col "
    "colgroup datalist dd details dialog dir div dl dt fieldset figcaption figure footer form frame frameset h1 h2 h3 "
    "h4 h5 h6 head header hgroup hr html iframe legend li link listing main map marquee menu menuitem meta nav noembed "
    "noframes noscript object ol optgroup option p param picture plaintext pre rb rp rt rtc ruby script search "
    "section select selectedcontent source style summary table tbody td template textarea tfoot th thead title tr "
    "track ul video xmp"
)


def listed(text: str) -> list[str]:
    """Return the lines of a text, with control characters for the names of those."""
    return [_control(line) for line in text.strip("\n").split("\n")]


def _control(line: str) -> str:
    for name, character in (("NUL", "\0"), ("FF", "\f"), ("CR", "\r"), ("LF", "\n"), ("LS", "\u2028")):
        line = line.replace(f"[{name}]", character)
    return line


# In all of these, @W stands for a word of its own and @H for a call with a number of its own.
# What a hostile model may write.
HOSTILE = listed("""
<b>
</p>
&lt;
&
"
'
<img src=x onerror=hit(-1)>
<script>hit(-1)</script>
-->
]]>
<!--
</title>
</script>
{x}
{
<svg/onload=hit(-1)>
<a
[NUL]
`
</textarea>
&#60;i>
=
<
>
""")
PIECES = listed("""
<!DOCTYPE html>
<!doctype x>
<?php echo $a->b; ?>
<?php @W ?>
<?php if ($a->b) { echo "<b>@W</b>"; } ?>
<?xml version='1'?>
<![CDATA[@W<b>]]>
<![CDATA[x]]>
<!-- @W -->
<!-->
<!--->
<!--x--!>
<!--
-->
--!>
<!
<!x>
</>
</ >
</
<
>
< b>
<1>
&
&lt
&lt;
&#60;
&#x3c;b>
&#0;
&#150;
&notit;
&amp
"
'
`
=
[NUL]
[FF]
[CR]
[LS]
\u00a0
<b
<p title="
<a href='
{name}
{{x}}
{<b>}
${y
<p title="<img src=x onerror=@H>">
<noscript><p title="</noscript><img src=x onerror=@H>"></noscript>
<noscript>@W<b>@W</b></noscript>
<script><!-- <script> </script> @H --></script>
<script>@H</script>
<style><img src=x onerror=@H></style>
<xmp><img src=x onerror=@H></xmp>
<title><img src=x onerror=@H></title>
<textarea><img src=x onerror=@H></textarea>
<iframe srcdoc="<script>parent.@H</script>"></iframe>
<template><b>@W<template></template></template>
<table><b>
<table><tr>
<table>@W @W
<tr>
<td>
</table>
<select><b>
<select>
</select>
<frameset>
<plaintext>
<b><p>
</b></p>
<a href=1><a href=2>
<b><i></b></i>
<p><b>
</p>
</br>
<x/>
<b/>
<svg>
</svg>
<math>
</math>
<\u017fcript>
<lin\u212a>
<body onload=@H>
<html lang=x>
<a href="x"title="@W">
<img src=x onerror=@H//>
<img/src=x/onerror=@H>
<meta http-equiv=x>
<link rel=x>
<base>
<input type=hidden>
<col>
<option>
<rt>
<button>
""")
FOREIGN = listed("""
<g>
</g>
<path/>
<title>@W</title>
<style><b></style>
<style>x</style>
<p>
<b>
<![CDATA[<img src=x onerror=@H>]]>
<foreignObject><div>d</div></foreignObject>
<foreignObject>
</foreignObject>
<desc>
<mi>x</mi>
<mtext><b>y</b></mtext>
<script>z</script>
<annotation-xml encoding='text/html'>
<mglyph>
<font color=x>
<font>
<br>
</p>
text
<svg>
<math>
<title><style><!--</style></title>
<table>
<a>
</a>
<template>
</template>
<!-- -->
""")
VALUES = listed("""
x
"x"
'x'
"<b>"
'>'
"<img src=x onerror=@H>"
a=b
<i>
"&quot;>"
x/
"a[LF]b"
'<script>@H</script>'
"[NUL]"
`x>`
"javascript:@H"
'"'
"{n}"
--
"</p>"
""")
NAMES = listed("""
a
title
href
b
=
"
'
<
onclick
/
A
x:y
data-[NUL]
style
src
color
""")
ATTRIBUTES = listed("""
class="c"
id='i'
hidden
title="@H"
onclick="@H"
href="javascript:@H"
href="https://example.org/?a=1&amp;b=2"
data-x=y
""")
ELEMENTS = listed("""
<script>@H; if (1 < 2) { }</script>
<style>p > b { color: red }</style>
<pre>[LF]@W @W[LF]</pre>
<title>@W</title>
<button onclick="@H">@W</button>
<select><option>@W</option></select>
<svg viewBox="0 0 1 1"><title>t</title><path d="M0 0"/></svg>
<textarea>@W</textarea>
""")
DEEP = listed("""
<b>
<div>
<p><b>
<b><p>
<a>
<table><tr><td>
<i x=@W>
<li>
<b></i>
<
&
</b>
<span><b>
<svg><g>
<template>
<x/>
<select>
<font a=@W><p>
<nobr>
<button>
<!--
<b>w<br>
""")

SHAPES = """
([pairs, contexts]) => {
  const stays = new Set(STAYS.split(" "));
  const points = new Set(["img", "input", "wbr", "embed", "area", "keygen"]);
  const raws = new Set(["script", "style", "textarea", "xmp", "iframe", "noembed", "noframes", "plaintext"]);
  const HTML = "http://www.w3.org/1999/xhtml";
  const inert = document.implementation.createHTMLDocument("");
  const roots = {
    document: html => new DOMParser().parseFromString(html, "text/html"),
    template: html => { const e = inert.createElement("template"); e.innerHTML = html; return e.content; },
    fragment: html => { const e = inert.createElement("div"); e.innerHTML = html; return e; },
    scripting: html => { const e = document.createElement("div"); e.innerHTML = html; return e; },
    td: html => { const e = inert.createElement("td"); e.innerHTML = html; return e; },
    tr: html => { const e = inert.createElement("tr"); e.innerHTML = html; return e; },
  };
  const ids = new Map();
  const id = key => { if (!ids.has(key)) ids.set(key, ids.size); return ids.get(key); };
  const shape = root => {
    const [inline, points_, comments] = [new Map(), new Map(), new Map()];
    const out = {order: [], inline, points: points_, comments, text: [], mode: root.compatMode || ""};
    const count = (map, key, label) => map.set(key, {label, n: (map.get(key)?.n || 0) + 1});
    const todo = [...root.childNodes].reverse().map(node => [node, 0]);
    while (todo.length) {
      const [node, path] = todo.pop();
      out.text.push(" ");
      if (node.nodeType === 3) { out.text.push(node.data); continue; }
      if (node.nodeType === 8 || node.nodeType === 7) { count(out.comments, node.data, node.data); continue; }
      if (node.nodeType === 10) { out.order.push("!" + node.name); continue; }
      if (node.nodeType !== 1) continue;
      const name = node.localName, html = node.namespaceURI === HTML;
      const attributes = [...node.attributes].map(a => a.name + "=" + JSON.stringify(a.value)).sort().join(" ");
      let label = name + "[" + attributes + "]";
      if (!html || points.has(name)) {
        count(out.points, path + "|" + (html ? label : node.outerHTML), html ? label : node.outerHTML);
        continue;
      }
      if (raws.has(name)) {
        out.order.push(path + "|" + label + "=" + node.textContent);
        continue;
      }
      let inner = path;
      if (stays.has(name)) {
        out.order.push(path + "|" + label);
        inner = id(path + "|" + label);
      } else {
        count(out.inline, path + "|" + label, label);
      }
      const children = name === "template" && node.content ? node.content.childNodes : node.childNodes;
      for (let i = children.length - 1; i >= 0; i--) todo.push([children[i], inner]);
    }
    return out;
  };
  const faults = [];
  pairs.forEach(([source, target], number) => {
    const shapes = [];
    for (const context of contexts) {
      const [a, b] = [shape(roots[context](source)), shape(roots[context](target))];
      const say = (kind, detail) => faults.push([number, kind, context, String(detail).slice(0, 300)]);
      for (const [key, {label}] of b.inline) if (!a.inline.has(key)) say("gained", label);
      for (const [key, {label}] of a.inline) if (!b.inline.has(key)) say("lost", label);
      for (const [key, {label, n}] of b.points) if (n > (a.points.get(key)?.n || 0)) say("gained", label);
      for (const [key, {label, n}] of a.points) if (n > (b.points.get(key)?.n || 0)) say("lost", label);
      for (const [key, {n}] of a.comments) if (n !== (b.comments.get(key)?.n || 0)) say("comment", key);
      for (const [key, {n}] of b.comments) if (n > (a.comments.get(key)?.n || 0)) say("comment", key);
      if (a.mode !== b.mode) say("mode", a.mode + " -> " + b.mode);
      if (a.order.join("\\n") !== b.order.join("\\n")) {
        const at = a.order.findIndex((x, i) => x !== b.order[i]);
        say("moved", at < 0 ? "more: " + b.order[a.order.length] : a.order[at] + " -> " + b.order[at]);
      }
      shapes.push([a.text.join(""), b.text.join("")]);
    }
    faults.push([number, "texts", "", shapes]);
  });
  return faults;
}
""".replace("STAYS", f'"{STAYS}"')

RUN = """
async ([sources, seconds]) => {
  window.hits = [];
  window.record = (name, what) => window.hits.push([name, what]);
  const frames = sources.map((source, number) => {
    const frame = document.createElement("iframe");
    frame.name = "f" + number;
    frame.hidden = true;  // no layout: that of 600 tables in each other takes for ever
    frame.sandbox = "allow-scripts allow-same-origin";
    frame.srcdoc = source;
    document.body.append(frame);
    return frame;
  });
  const wait = ms => new Promise(done => setTimeout(done, ms));
  await wait(seconds * 1000);
  for (const frame of frames) {
    try {
      for (const element of [...frame.contentDocument.querySelectorAll("*")].slice(0, 200)) {
        for (const event of ["mouseover", "focus", "click"]) element.dispatchEvent(new Event(event));
      }
    } catch { /* it went elsewhere */ }
  }
  await wait(100);
  frames.forEach(frame => frame.remove());
  return window.hits;
}
"""


class Case(NamedTuple):
    """A source, what became of it, and the words that were given to the translator and came back."""

    wild: bool
    source: str
    output: str
    read: str
    written: str


@dataclass
class Report:
    """What was tried, and what went wrong: faults by kind, and the first few of each."""

    inputs: int = 0
    wild: int = 0
    kept: int = 0  # sources of which a part was kept as it was
    ran: int = 0  # sources that were run in frames, with their outputs
    called: int = 0  # calls by the sources' own scripts
    seconds: float = 0.0
    slowest: float = 0.0
    faults: Counter[str] = field(default_factory=Counter)
    examples: list[tuple[str, str, str, str, str]] = field(default_factory=list)
    seen: set[tuple[str, str]] = field(default_factory=set)

    def add(self, kind: str, case: Case, context: str, detail: str) -> None:
        """Count a fault, once for each source and kind."""
        if (kind, case.source) in self.seen:
            return
        self.seen.add((kind, case.source))
        self.faults[kind] += 1
        if sum(example[0] == kind for example in self.examples) < 3:
            self.examples.append((kind, context, detail, case.source, case.output))

    def __str__(self) -> str:
        """The table that is printed."""
        rows = [
            f"inputs             {self.inputs:,} ({self.wild:,} wild)",
            f"kept in part       {self.kept:,}",
            f"run with scripts   {self.ran:,} ({self.called:,} calls by the sources' own scripts)",
            f"slowest            {self.slowest * 1000:.1f} ms to parse and carry over",
            f"seconds            {self.seconds:.0f}",
            *(f"fault: {kind:<11} {count:,}" for kind, count in self.faults.most_common()),
        ]
        if not self.faults:
            rows.append("no fault")
        for kind, context, detail, source, output in self.examples:
            rows.append(f"\n{kind} ({context}): {detail}\n  source {source!r}\n  output {output!r}")
        return "\n".join(rows)


class Generator:
    """Makes sources; every word in them is another one, and every script calls `hit` with another number."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.count = 0

    def source(self, wild: bool) -> str:
        """Return a source."""
        self.count = 0
        pick = self.random
        if not wild:
            return self._plain(0)
        kind = pick.random()
        if kind < 0.3:
            return self._mutated(self._plain(0))
        if kind < 0.9:
            return "".join(self._piece() for _ in range(pick.choice((2, 4, 8, 16, 32))))
        if kind < 0.95:
            return self._repeated()
        return self._mutated("".join(self._piece() for _ in range(12)))

    def word(self) -> str:
        """Return a word that no other source word is like."""
        self.count += 1
        return f"w{self.count}x"

    def filled(self, piece: str) -> str:
        """Return a piece with words and numbers of its own."""
        return re.sub("@[WH]", lambda mark: self.word() if mark[0] == "@W" else self._hit(), piece)

    def _words(self) -> str:
        pick = self.random
        words = [self.word() for _ in range(pick.randint(1, 4))]
        marks = ("", ".", ",", "!", " &amp; ", " &lt;b&gt;", "&nbsp;", " 1 < 2", " {name}", "{{n}}", " ${x} ")
        return pick.choice((" ", "", "\n")) + " ".join(words) + pick.choice(marks) + pick.choice((" ", ""))

    def _hit(self) -> str:
        self.count += 1
        return f"hit({self.count})"

    def _attributes(self) -> str:
        pick = self.random
        return " " + self.filled(pick.choice(ATTRIBUTES)) if pick.random() < 0.7 else ""

    def _plain(self, depth: int) -> str:
        """Return well-formed HTML."""
        pick = self.random
        parts = []
        for _ in range(pick.randint(1, 4)):
            kind = pick.random()
            if kind < 0.4 or depth > 3:
                parts.append(self._inline(depth))
            elif kind < 0.75:
                name = pick.choice(("p", "div", "h1", "section", "blockquote"))
                inner = self._inline(depth + 1) if name in ("p", "h1") else self._plain(depth + 1)
                parts.append(f"<{name}{self._attributes()}>{inner}</{name}>")
            elif kind < 0.85:
                items = "".join(f"<li>{self._inline(depth + 1)}</li>\n" for _ in range(pick.randint(1, 3)))
                parts.append(f"<ul{self._attributes()}>\n{items}</ul>")
            elif kind < 0.92:
                cells = "".join(f"<td>{self._inline(depth + 1)}</td>" for _ in range(2))
                parts.append(f"<table><tr>{cells}</tr></table>")
            else:
                parts.append(self.filled(pick.choice(ELEMENTS)))
        return "".join(parts)

    def _inline(self, depth: int) -> str:
        pick = self.random
        parts = [self._words()]
        for _ in range(pick.randint(0, 3)):
            kind = pick.random()
            if kind < 0.6 and depth < 6:
                name = pick.choice(INLINE)
                inner = self._words() if name in ("a", "nobr") else self._inline(depth + 1)
                parts.append(f"<{name}{self._attributes()}>{inner}</{name}>")
            elif kind < 0.8:
                empty = ("<br>", "<br/>", "<wbr>", "<!-- c -->", "<img src=x onerror=@H>")
                parts.append(self.filled(pick.choice(empty)))
            else:
                parts.append(self._words())
        return "".join(parts)

    def _piece(self) -> str:
        """Return a piece of wild HTML."""
        pick, kind = self.random, self.random.random()
        names = pick.choice((INLINE, INLINE, BLOCKS, EMPTY, RAW, ODD))
        if kind < 0.3:
            return self._words()
        if kind < 0.55:
            return self._tag(pick.choice(names))
        if kind < 0.7:
            return "</" + pick.choice(names) + pick.choice(("", "", " ", " foo", "/", ' a=">"')) + ">"
        if kind < 0.76:
            name = pick.choice((*INLINE, *BLOCKS, *RAW, *RAW, *ODD))
            return f"{self._tag(name)}{self._piece()}</{name}>"
        return self._foreign() if kind < 0.8 else self.filled(pick.choice(PIECES))

    def _tag(self, name: str) -> str:
        pick = self.random
        tag = name.upper() if pick.random() < 0.1 else name
        for _ in range(pick.choice((0, 0, 0, 1, 1, 2, 3))):
            tag += pick.choice((" ", " ", "\n", "/", "", "\f", "  ")) + pick.choice(NAMES)
            if pick.random() < 0.8:
                tag += pick.choice(("=", "=", " = ", "=\n")) + self.filled(pick.choice((*VALUES, "")))
        return f"<{tag}{pick.choice(('', '', '', '/', ' /', ' '))}>"

    def _foreign(self) -> str:
        pick = self.random
        inner = "".join(self.filled(pick.choice(FOREIGN)) for _ in range(pick.randint(0, 4)))
        name = pick.choice(("svg", "math"))
        return f"<{name}{pick.choice(('', '', ' x=y', '/'))}>{inner}{pick.choice((f'</{name}>', f'</{name}>', ''))}"

    def _mutated(self, source: str) -> str:
        pick = self.random
        characters = list(source)
        for _ in range(pick.randint(1, 4)):
            at = pick.randint(0, len(characters))
            end = min(len(characters), at + pick.choice((1, 1, 2, 5)))
            kind = pick.random()
            if kind < 0.4:
                del characters[at:end]
            elif kind < 0.7:
                characters[at:at] = pick.choice("<>\"'/=&!-?[]\0 {}\n;")
            elif kind < 0.85:
                characters[at:at] = self._piece()
            else:
                other = pick.randint(0, len(characters))
                characters[other:other] = characters[at : at + pick.randint(1, 12)]
        return "".join(characters)

    def _repeated(self) -> str:
        """Return deep nesting, many attributes, and the like."""
        pick, piece = self.random, self.random.choice(DEEP)
        # Browsers repeat formatting that is not closed in every paragraph: a tree of squares.
        count = pick.choice((3, 10, 40, 100) if "<p>" in piece else (3, 10, 40, 150, 600))
        body = "".join(self.filled(piece) for _ in range(count))
        kind = pick.random()
        if kind < 0.2:
            values = " ".join(f"a{number}=1" for number in range(count))
            return f'<p title="{"<b>" * count}" {values}>{self._words()}'
        if kind < 0.6:
            return f"{body}{self._words()}"
        return f"{self._words()}{body}{self._words()}</b>{self._piece()}"


def spaced(text: str) -> tuple[Word, ...]:
    """Return the words of a text as white space separates them."""
    return tuple(Word(m[0], m.start(), m.end(), i, i + 1) for i, m in enumerate(re.finditer(r"\S+", text)))


def translated(marked: Marked, pick: random.Random) -> tuple[str, Alignment | None]:
    """Return a translation and links that have nothing to do with each other; lines are mostly kept."""
    lines = []
    for line in marked.text.split("\n"):
        words = [word.upper().replace("W", "T") for word in line.split()]
        kind = pick.random()
        if kind < 0.5:
            pick.shuffle(words)
        if kind < 0.15:
            words = [word for word in words if pick.random() < 0.6]
        if 0.1 < kind < 0.3:
            words += pick.choices(words, k=2) if words else []
        if kind > 0.7:
            words.insert(pick.randint(0, len(words)), pick.choice(HOSTILE))
        if kind > 0.98:
            words = []
        lines.append(" " * (pick.random() < 0.1) + " ".join(words))
    target = ("\n" if pick.random() < 0.9 else " ").join(lines)
    if pick.random() < 0.2:
        return target, None
    source_words, target_words = spaced(marked.text), spaced(target)
    weights = np.zeros((len(target_words), len(source_words)), dtype=np.float32)
    pairs = set()
    if source_words and target_words:
        for _ in range(pick.randint(0, 2 * len(source_words))):
            pairs.add((pick.randrange(len(source_words)), pick.randrange(len(target_words))))
    for s, t in pairs:
        weights[t, s] = 1
    return target, Alignment(source_words, target_words, tuple(Link(s, t, 1.0) for s, t in sorted(pairs)), weights)


def cases(inputs: int, seed: int, report: Report) -> Iterator[Case]:
    """Yield sources, plain and wild in turn, and what the markup code makes of them."""
    generator, pick = Generator(seed), random.Random(seed + 1)
    for number in range(inputs):
        wild = bool(number % 2)
        source = generator.source(wild)
        report.inputs += 1
        report.wild += wild
        begin = time.process_time()
        try:
            marked = parse(source)
            spent = time.process_time() - begin
            target, alignment = translated(marked, pick)
            begin = time.process_time()
            output = carry(marked, alignment, target)
        except Exception as error:
            report.add("error", Case(wild, source, "", "", ""), type(error).__name__, str(error))
            continue
        report.slowest = max(report.slowest, spent + time.process_time() - begin)
        report.kept += bool(marked.notes)
        yield Case(wild, source, output, marked.text, target)


CONTEXTS = ("document", "template", "fragment", "scripting", "td", "tr")


def judge(page: Any, batch: Sequence[Case], report: Report) -> None:  # noqa: ANN401
    """Compare what Chromium makes of sources and outputs."""
    pairs = [[case.source, case.output] for case in batch]
    for number, kind, context, detail in page.evaluate(SHAPES, [pairs, CONTEXTS]):
        case = batch[number]
        if kind != "texts":
            report.add(kind, case, context, detail)
            continue
        for context, (before, after) in zip(CONTEXTS, detail, strict=True):
            if fault := text_fault(case, before, after):
                report.add("text", case, context, fault)


def text_fault(case: Case, before: str, after: str) -> str:
    """Return which words are missing, or too many, in what a parser shows of an output; nothing if none."""
    whole = set(re.findall(r"w\d+x", case.source))  # and not in two, by a tag that a browser leaves out
    read, source = (Counter(w for w in re.findall(r"w\d+x", text) if w in whole) for text in (case.read, before))
    written, came = (Counter(re.findall(r"w\d+x|T\d+X", text)) for text in (case.written, after))
    lost = source - read - came
    if lost:
        return f"source words lost: {sorted(lost)}"
    if more := Counter({word: count for word, count in came.items() if word in whole}) - source:
        return f"source words gained: {sorted(more)}"
    # What a browser drops in the source it drops in the output: only words that it showed can be missed.
    shown = {word.upper().replace("W", "T") for word in source}
    lost = Counter({word: count for word, count in (written - came).items() if word in shown})
    if lost:
        return f"words lost: {sorted(lost)}"
    known = {word.upper().replace("W", "T") for word in whole}
    more = Counter({word: count for word, count in came.items() if word in known}) - written
    return f"words gained: {sorted(more)}" if more else ""


def run_all(page: Any, batch: Sequence[Case], report: Report) -> None:  # noqa: ANN401
    """Run sources and outputs in frames, and compare what was called; what may be only late is run again."""
    report.ran += len(batch)
    called: dict[tuple[str, bool], set[int]] = {}
    for seconds in (0.5, 2.0, 8.0):
        frames = [(case, own) for case in batch for own in (True, False)]
        sources = [case.source if own else case.output for case, own in frames]
        for name, what in page.evaluate(RUN, [sources, seconds]):
            if re.fullmatch(r"f\d+", name):
                case, own = frames[int(name[1:])]
                called.setdefault((case.source, own), set()).add(what)
        batch = [
            case for case in batch if called.get((case.source, False), set()) - called.get((case.source, True), set())
        ]
        if not batch:
            break
    report.called += sum(len(what) for (_, own), what in called.items() if own)
    for case in batch:
        report.add("ran", case, "frame", f"hit({sorted(called[case.source, False])})")


def browser_path() -> str | None:
    """Return where Chromium is, if it is there."""
    return shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


def main(inputs: int = 10_000, seed: int = 0, share: float = 0.04, batch: int = 50) -> Report:
    """Fuzz; a `share` of the inputs is also run with scripts."""
    from playwright.sync_api import sync_playwright

    report, begin = Report(), time.perf_counter()
    pick = random.Random(seed + 2)
    empty = {"body": "<!doctype html><title>judge</title>", "content_type": "text/html"}
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=browser_path(), args=["--no-sandbox"])
        try:
            strict, open_ = browser.new_page(), browser.new_page()
            rule = {"Content-Security-Policy": "default-src 'none'"}
            strict.route("**/*", lambda route: route.fulfill(**empty, headers=rule))
            strict.goto("http://judge.test/")
            open_.add_init_script("window.hit = n => { try { top.record(window.name, n); } catch {} };")
            open_.route(
                "**/*",
                lambda route: route.fulfill(**empty) if route.request.url == "http://open.test/" else route.abort(),
            )
            open_.on("dialog", lambda dialog: dialog.dismiss())
            open_.goto("http://open.test/")
            waiting: list[Case] = []
            live: list[Case] = []
            for case in cases(inputs, seed, report):
                waiting.append(case)
                if pick.random() < share:
                    live.append(case)
                if len(waiting) == batch:
                    judge(strict, waiting, report)
                    waiting = []
                    if report.inputs % 1000 == 0:
                        print(
                            f"{report.inputs:,} of {inputs:,}, {sum(report.faults.values()):,} faults", file=sys.stderr
                        )
                if len(live) == 20:
                    run_all(open_, live, report)
                    live = []
            judge(strict, waiting, report)
            run_all(open_, live, report)
        finally:
            browser.close()
    report.seconds = time.perf_counter() - begin
    return report


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--inputs", type=int, default=10_000, help="sources")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--run-share", type=float, default=0.04, help="how many of them are run with scripts")
    options = parser.parse_args()
    result = main(options.inputs, options.seed, options.run_share)
    print(result)
    sys.exit(1 if result.faults else 0)

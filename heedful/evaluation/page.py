"""HTML pages that open anywhere: one document with its style, without a network, light and dark."""

from __future__ import annotations

from collections.abc import Sequence

from heedful.draw import html as drawn
from heedful.draw.picture import FONTS, clean

__all__ = ["document", "facts", "figure_in_two_widths", "scroll"]

# The browser loads nothing and runs nothing, whatever a sentence holds.
POLICY = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"


def document(title: str, version: str, body: str, figures: bool = False) -> str:
    """Return a page with its style; the body has to be escaped already.

    With `figures` it includes the script that draws them, and may run only that.
    """
    policy, style = (drawn.policy(), STYLE + drawn.style()) if figures else (POLICY, STYLE)
    end = f"<script>{drawn.script()}</script>\n" if figures else ""
    return drawn.document(clean(title), body + end, policy, style, version)


def facts(known: Sequence[tuple[str, str]]) -> str:
    """Return names and values as a definition list."""
    return f"<dl>{''.join(f'<dt>{clean(name)}</dt><dd>{clean(value)}</dd>' for name, value in known)}</dl>"


def figure_in_two_widths(wide: str, narrow: str, label: str) -> str:
    """Return a picture in two widths; the page shows the one that fits the screen."""
    shown = scroll(wide, label, "chart")
    return f'<figure><div class="on-wide">{shown}</div><div class="on-narrow">{narrow}</div></figure>'


def scroll(inside: str, label: str, kind: str = "") -> str:
    """Return a box that scrolls sideways, also by the keyboard."""
    kinds = f"scroll {kind}".strip()
    return f'<div class="{kinds}" tabindex="0" role="region" aria-label="{clean(label)}">{inside}</div>'


STYLE = """
:root {
  color-scheme: light dark;
  --paper: #fcfbf9; --raised: #ffffff; --ink: #1d1c1a; --soft: #5f5b55; --line: #dcd8d0; --link: #0b5a9c;
  --good: #1c6b3c; --bad: #9c3d06; --mark: #fbe3cf; --shadow: rgba(60, 50, 30, .22);
}
@media (prefers-color-scheme: dark) {
  :root {
    --paper: #14161a; --raised: #1b1e23; --ink: #e9e6e1; --soft: #a9a59e; --line: #383b41; --link: #7fbdf5;
    --good: #7fd6a2; --bad: #f4ab63; --mark: #4a2f16; --shadow: rgba(0, 0, 0, .7);
  }
}
*, *::before, *::after { box-sizing: border-box; }
html { -webkit-text-size-adjust: 100%; scroll-behavior: smooth; }
body {
  margin: 0; background: var(--paper); color: var(--ink); overflow-wrap: break-word;
  font: 1.0625rem/1.6 FONTS; font-variant-numeric: tabular-nums;
}
header, main, footer { max-width: 52rem; margin: 0 auto; padding: 0 1rem; }
header { padding-top: clamp(2rem, 7vw, 4.5rem); }
h1, h2, h3 { line-height: 1.2; text-wrap: balance; }
h1, h2 { font-family: ui-serif, "Iowan Old Style", Charter, Georgia, "Noto Serif", serif; font-weight: 600; }
h1 { font-size: clamp(1.9rem, 6vw, 2.7rem); letter-spacing: -.015em; margin: 0 0 .5rem; }
h2 { font-size: 1.6rem; margin: 4.5rem 0 .75rem; letter-spacing: -.01em; }
h3 { font-size: 1.05rem; margin: 0; }
p { margin: 0 0 1rem; max-width: 42rem; text-wrap: pretty; }
a { color: var(--link); text-underline-offset: .18em; }
.lead p:not(.small) { font-size: clamp(1.1rem, 2.6vw, 1.25rem); line-height: 1.55; max-width: none; }
.lead { margin: 1.75rem 0 2.25rem; }
.soft, figcaption, .small { color: var(--soft); }
figcaption, .small { font-size: .9rem; line-height: 1.5; }
nav ul {
  list-style: none; display: flex; flex-wrap: wrap; gap: .25rem 1.25rem; margin: 0; padding: 0; font-size: .95rem;
}
.cards {
  display: grid; grid-template-columns: repeat(auto-fit, minmax(min(15rem, 100%), 1fr)); gap: 1rem; margin: 0 0 2rem;
}
.card, article {
  background: var(--raised); border: 1px solid var(--line); border-radius: .75rem; padding: 1.1rem 1.25rem;
}
.card h3 { display: flex; gap: .6rem; align-items: center; }
.big { font-size: 2.6rem; line-height: 1.1; font-weight: 650; letter-spacing: -.02em; margin: .7rem 0 .15rem; }
.card .small { margin: 0 0 .9rem; }
dl { display: grid; grid-template-columns: 1fr auto; gap: .3rem 1rem; margin: 0; }
.card dl { font-size: .95rem; line-height: 1.4; }
.keep { white-space: nowrap; }
dt { color: var(--soft); }
dd { margin: 0; text-align: right; }
.facts dl { grid-template-columns: minmax(7rem, 13rem) 1fr; gap: .4rem 1.25rem; }
.facts dd { text-align: left; min-width: 0; overflow-wrap: anywhere; }
figure { margin: 1.75rem 0; }
figcaption { margin-top: .6rem; max-width: 42rem; }
.scroll {
  overflow-x: auto; -webkit-overflow-scrolling: touch; border-radius: .25rem;
  background:
    linear-gradient(to right, var(--ground) 40%, transparent) left / 2.5rem 100% no-repeat local,
    linear-gradient(to left, var(--ground) 40%, transparent) right / 2.5rem 100% no-repeat local,
    linear-gradient(to right, var(--shadow), transparent) left / .7rem 100% no-repeat scroll,
    linear-gradient(to left, var(--shadow), transparent) right / .7rem 100% no-repeat scroll;
  --ground: var(--paper);
}
article .scroll { --ground: var(--raised); }
.scroll:focus-visible, summary:focus-visible, a:focus-visible { outline: 2px solid var(--link); outline-offset: 3px; }
.scroll > svg { display: block; max-width: none; }
.chart > svg { width: 100%; min-width: 30rem; max-width: 100%; }
.on-narrow { display: none; }
.on-narrow svg { display: block; width: 100%; max-width: 26rem; margin: 0 auto; }
table { border-collapse: collapse; width: 100%; font-size: .95rem; }
th, td { padding: .45rem .7rem; text-align: right; border-bottom: 1px solid var(--line); white-space: nowrap; }
th { font-weight: 600; }
thead th { color: var(--soft); font-size: .85rem; }
thead tr:first-child th[colspan] { text-align: center; color: var(--ink); font-size: .95rem; }
th:first-child, td:first-child { text-align: left; padding-left: 0; }
td.first, th.first { border-left: 1px solid var(--line); }
tfoot td, tfoot th { font-weight: 600; border-bottom: 0; border-top: 1px solid var(--soft); }
caption { text-align: left; color: var(--soft); font-size: .9rem; padding-bottom: .6rem; }
td.text, th.text { text-align: left; white-space: normal; min-width: 14rem; }
.scroll + p { margin-top: 1rem; }
article { margin: 1.5rem 0; }
article > p { margin: 0; max-width: none; }
article .source { font-size: 1.3rem; line-height: 1.65; }
.tags { display: flex; flex-wrap: wrap; gap: .35rem .6rem; margin: .1rem 0 .7rem; padding: 0; list-style: none; }
.tags li {
  border: 1px solid var(--line); border-radius: 1rem; padding: .05rem .7rem; font-size: .85rem; color: var(--soft);
}
article .reference { margin: .2rem 0 .4rem; }
.who { display: block; color: var(--soft); font-size: .85rem; margin-top: .8rem; }
.who svg { vertical-align: -.15em; margin-right: .45rem; }
.right, .wrong { font-weight: 600; }
.right { color: var(--good); }
.wrong { color: var(--bad); }
mark { background: var(--mark); color: inherit; border-bottom: 2px solid var(--bad); padding: 0 .12em; }
del { color: var(--soft); text-decoration-thickness: 1.5px; }
details { margin-top: 1rem; border-top: 1px solid var(--line); padding-top: .6rem; }
summary { cursor: pointer; font-size: .95rem; color: var(--link); padding: .25rem 0; }
details figure { margin: .75rem 0 0; }
.read li { margin-bottom: .4rem; max-width: 42rem; }
.read { padding-left: 1.2rem; }
pre {
  overflow-x: auto; background: var(--raised); border: 1px solid var(--line); border-radius: .5rem;
  padding: .7rem .9rem; margin: .3rem 0 1.4rem; font: .9rem/1.5 ui-monospace, "SF Mono", Menlo, Consolas, monospace;
}
pre + p, .try p { margin-bottom: .3rem; }
code { font: .92em ui-monospace, "SF Mono", Menlo, Consolas, monospace; }
footer { margin-top: 4.5rem; padding-bottom: 3rem; }
footer p { padding-top: 1.25rem; border-top: 1px solid var(--line); max-width: none; }
:lang(hi) { line-height: 1.75; }
@media (max-width: 36rem) {
  .on-wide { display: none; }
  .on-narrow { display: block; }
  body { font-size: 1rem; }
  h2 { margin-top: 3.25rem; }
  .card, article { padding: .9rem 1rem; }
  .facts dl { grid-template-columns: 1fr; gap: 0; }
  .facts dd { margin-bottom: .6rem; }
}
@media print {
  :root {
    color-scheme: light;
    --paper: #ffffff; --raised: #ffffff; --ink: #000000; --soft: #444444; --line: #bbbbbb; --link: #000000;
    --good: #1c6b3c; --bad: #9c3d06; --mark: #fbe3cf;
  }
  body { font-size: 10.5pt; }
  nav { display: none; }
  .scroll { overflow: visible; background: none; }
  .scroll > svg { max-width: 100%; height: auto; }
  article, figure, table, pre { break-inside: avoid; }
  h2, h3 { break-after: avoid; }
}
""".replace("FONTS", FONTS)

"""The documents say what is true: their code prints what they show, they are up to date, their links lead somewhere."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import pkgutil
import re
from pathlib import Path
from typing import Any

import pytest
from conftest import ROOT
from documents import blocks, check, compare, refresh, run
from walks import Walk, walks

PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
RUNNING = [p for p in PAGES if blocks(p.read_text(encoding="utf-8"))]
SLOW = ("README.md", "gradients.md", "gradient-paths.md", "recall.md", "long-text.md", "ensembles.md")
PICTURES = ROOT / "docs" / "pictures"


def script(path: Path) -> Any:
    """The module of a file outside the package."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    "path",
    [pytest.param(p, id=p.name, marks=[pytest.mark.slow] if p.name in SLOW else []) for p in RUNNING],
)
def test_the_code_in_a_document_prints_and_draws_what_is_shown(path: Path) -> None:
    document = run(path)
    wrong = check(document, PICTURES)
    assert not wrong, "\n".join(wrong)
    if path.name == "README.md":
        assert str(document.names["translation"]) == "I am eating"


@pytest.mark.parametrize("picture", sorted(PICTURES.glob("*")), ids=lambda p: p.name)
def test_a_picture_is_shown_by_a_document(picture: Path) -> None:
    assert any(f"pictures/{picture.name})" in p.read_text(encoding="utf-8") for p in PAGES)


def test_generated_pages_are_up_to_date() -> None:
    if f"typer=={importlib.metadata.version('typer')}\n" not in (ROOT / "constraints.txt").read_text(encoding="utf-8"):
        pytest.skip("the help texts are those of the pinned version of typer")
    generate = script(ROOT / "docs" / "generate.py")
    for name, page in generate.PAGES.items():
        assert (ROOT / "docs" / name).read_text(encoding="utf-8") == page(), f"docs/{name} is out of date: make docs"
    design = (ROOT / "docs" / "lab" / "design.md").read_text(encoding="utf-8")
    for name in ("rooms", "protocol"):
        part = generate.SECTIONS["lab/design.md"][name]()
        assert generate.section(design, name) == part, f"{name} of docs/lab/design.md is out of date: make docs"


@pytest.fixture(scope="module")
def measured_walks() -> dict[str, Walk]:
    return walks()


def test_the_walks_in_the_design_are_those_of_the_code(measured_walks: dict[str, Walk]) -> None:
    """The files listed are those that a real update, translation and drawing visit, no more and no less."""
    generate = script(ROOT / "docs" / "generate.py")
    text = generate.section((ROOT / "docs" / "lab" / "design.md").read_text(encoding="utf-8"), "walks")
    for name, title in generate.WALKS.items():
        part = text.split(f"**{title}**")[1].split("\n\n**")[0]
        listed = {file.removeprefix("../../") for file in re.findall(r"\]\((\S+\.py)\)", part)}
        walk = measured_walks[name]
        assert set(walk.files) <= listed, f"{title}: not in docs/lab/design.md: make docs"
        ahead = {file for file in listed if file.startswith(("heedful/data/", "heedful/text/"))}  # prefetched, perhaps
        assert listed - {*walk.files, *walk.background} <= ahead, f"{title}: no longer visited: make docs"


@pytest.mark.parametrize(
    ("name", "files"),
    [
        ("update, rnn", 16),
        ("update, transformer", 12),
        ("translation, rnn", 14),
        ("translation, transformer", 14),
        ("drawing, rnn", 5),
        ("drawing, transformer", 5),
    ],
)
def test_walks_are_short(measured_walks: dict[str, Walk], name: str, files: int) -> None:
    """How many files somebody has to read to follow an update, a translation or a drawing."""
    walk = measured_walks[name]
    assert len(walk.files) + len(walk.background) <= files, [*walk.files, *walk.background]
    if name == "update, rnn":
        assert walk.moves <= 150


def prose(path: Path) -> list[tuple[int, str]]:
    """The lines of a page that are wrapped: no tables, code, headings or lines that a link makes long."""
    lines, code = [], False
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        code ^= line.startswith("```")
        if not code and not line.startswith(("|", "#", "```", "![", "    ")):
            lines.append((number, re.sub(r"\]\([^)]*\)", "]()", line)))
    return lines


WRAPPED = [ROOT / "README.md", *(ROOT / "docs" / "guide").glob("*.md"), *(ROOT / "docs" / "lab").glob("*.md")]


@pytest.mark.parametrize("path", WRAPPED, ids=lambda p: p.name)
def test_pages_are_wrapped(path: Path) -> None:
    wide = [f"{path.name}, line {number}: {len(line)} characters" for number, line in prose(path) if len(line) > 100]
    assert not wide, "\n".join(wide)


@pytest.mark.parametrize("path", sorted((ROOT / "docs" / "guide").glob("*.md")), ids=lambda p: p.name)
def test_guide_pages_are_short(path: Path) -> None:
    if path.name != "attention.md":  # the tour may be longer
        assert len(path.read_text(encoding="utf-8").splitlines()) <= 150


def test_the_readme_can_be_read_in_two_minutes() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert len(text.splitlines()) <= 120
    assert text.index("![") < text.index("\n## ")


def anchors(path: Path) -> set[str]:
    """The anchors that GitHub makes of the headings of a page."""
    headings = re.findall(r"^#+ (.*)$", path.read_text(encoding="utf-8"), flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}


def without_code(path: Path) -> str:
    """The text of a page without its blocks of code."""
    return re.sub(r"^```.*?^```$", "", path.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)


@pytest.mark.parametrize("path", PAGES, ids=lambda p: p.name)
def test_links_lead_somewhere(path: Path) -> None:
    for target, anchor in re.findall(r"\]\(([^)#\s]*)(?:#([^)\s]*))?\)", without_code(path)):
        if not target.startswith(("http:", "https:")):
            there = path.parent / target if target else path
            assert there.exists(), f"{path.name} links to {target}"
            assert not anchor or anchor in anchors(there), f"{path.name} links to {target}#{anchor}"


@pytest.mark.parametrize("path", [p for p in PAGES if p.parent != ROOT], ids=lambda p: p.name)
def test_names_of_files_and_of_code_are_right(path: Path) -> None:
    """In backquotes: files of the repository, files of the package such as `training/step.py`, and dotted names."""
    rooms = {room.stem for room in (ROOT / "heedful").iterdir()} - {"demo"}  # also a folder that the demo writes
    for quoted in re.findall(r"`([^`\n]+)`", without_code(path)):
        name = re.sub(r"\(.*\)$", "", quoted)
        if re.fullmatch(r"(heedful|tests|benchmarks|docs|recipes|examples)(/[a-z_0-9.-]+)+/?", name):
            assert (ROOT / name).exists(), f"{path.name} names {name}"
        elif re.fullmatch(r"[a-z_]+(/[a-z_]+)+(\.py|/)?", name) and name.split("/")[0] in rooms:
            file = ROOT / "heedful" / name
            assert file.exists() or file.with_suffix(".py").exists(), f"{path.name} names {name}"
        elif re.fullmatch(r"heedful(\.\w+)+", name):
            assert resolves(name), f"{path.name} names {name}"


def resolves(name: str) -> bool:
    """Whether a dotted name is a module or something in one."""
    try:
        pkgutil.resolve_name(name)
    except (ImportError, AttributeError):
        return False
    return True


def written(folder: Path, text: str) -> Path:
    page = folder / "page.md"
    page.write_text(text, encoding="utf-8")
    return page


TWO = """# A page

```python
x = 2.0
```

```python
print(f"x is {x / 3:.3f}")
print("that", "is 7", "of")
```

```text
x is 0.667
that is 7 of
```
"""


def test_a_document_runs_in_one_namespace_and_shows_what_it_prints(tmp_path: Path) -> None:
    page = written(tmp_path, TWO)
    assert check(run(page), tmp_path) == []


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("0.667", "0.712", "page.md, line 13: shown is 'x is 0.712', but the code prints 'x is 0.667'"),
        ("7 of\n```", "8 of\n```", "page.md, line 14: shown is 'that is 8 of', but the code prints 'that is 7 of'"),
        ("that is", "This is", "page.md, line 14: shown is 'This is 7 of', but the code prints 'that is 7 of'"),
        ("of\n```", "of\nall\n```", "page.md, line 15: shown is 'all', but the code prints no such line"),
        ("that is 7 of\n", "", "page.md, line 14: the code prints one more line, 'that is 7 of'"),
        ("```text", "Then:\n\n```text", "page.md, line 7: this code prints 'x is 0.667', but no ```text block follows"),
        ("x = 2.0", "x = 2.0\nprint()", "page.md, line 3: this code prints '', but no ```text block follows"),
    ],
    ids=["number", "count", "word", "missing", "more", "apart", "silent"],
)
def test_what_a_document_shows_wrongly_is_named_with_its_line(tmp_path: Path, old: str, new: str, message: str) -> None:
    assert old in TWO
    (wrong,) = check(run(written(tmp_path, TWO.replace(old, new))), tmp_path)
    assert wrong.startswith(message)


def test_an_error_in_a_document_names_its_line(tmp_path: Path) -> None:
    page = written(tmp_path, TWO.replace("x / 3", "x / 0"))
    with pytest.raises(ZeroDivisionError) as caught:
        run(page)
    assert (caught.traceback[-1].path, caught.traceback[-1].lineno + 1) == (page, 8)


def test_a_block_that_is_not_closed_is_refused() -> None:
    with pytest.raises(ValueError, match="line 3: the block is not closed"):
        blocks("a\n\n```python\nprint(1)\n")


@pytest.mark.parametrize(
    ("shown", "printed", "same"),
    [
        ("α = 0.125", "α = 0.126", True),
        ("α = 0.125", "α = 0.128", False),
        ("512.3", "507.4", True),
        ("512.3", "506.9", False),
        ("12%", "13%", True),
        ("12%", "14%", False),
        ("12%", "12", False),
        ("12.5%", "12.5", False),
        ("1.3e-07", "1.4e-07", True),
        ("1.3e-07", "1.3e-06", False),
        ("tensor([ 0.0000, 0.5000])", "tensor([-0.0000, 0.5001])", True),
        ("tensor([0.0000, 0.5000])", "tensor([0.0000,  0.5000])", False),
        ("h_1 at 3", "h_2 at 3", False),
        ("h_1 at 3", "h_1 at 4", False),
        ("0.5, 0.5", "0.5", False),
        ("0.5", "nan", False),
        ("1,024", "1,024", True),
        ("1,024.0", "1,025.0", True),
        ("1.0", "-1.0", False),
        ("5", "5.0", False),
        ("██ ░░", "██  ░░", False),
        ("word   ", "word", True),
    ],
)
def test_words_are_compared_exactly_and_numbers_up_to_rounding(shown: str, printed: str, same: bool) -> None:
    assert (compare([shown], [printed]) is None) is same


def test_outputs_are_written_anew_in_place(tmp_path: Path) -> None:
    old = TWO.replace("0.667", "0.1").replace("that is 7 of\n", "").replace("x = 2.0", "x = 2.0\nprint(7)")
    page = written(tmp_path, old)
    script(ROOT / "docs" / "generate.py").refresh_documents(tmp_path)
    wanted = TWO.replace("x = 2.0\n```\n", "x = 2.0\nprint(7)\n```\n\n```text\n7\n```\n")
    assert page.read_text(encoding="utf-8") == wanted
    refresh(page, tmp_path)
    assert page.read_text(encoding="utf-8") == wanted


def test_pictures_are_drawn_anew_and_held_to_what_is_drawn(tmp_path: Path) -> None:
    drawn = '<svg aria-labelledby="t0a1b2c3d"><g opacity="0.25"/><text>25</text></svg>\n'
    code = f'from pathlib import Path\n\nPath("pictures/page-a.svg").write_text({drawn!r}, encoding="utf-8")'
    page = written(tmp_path, f"```python\n{code}\n```\n")
    pictures = tmp_path / "drawn"
    assert check(run(page), pictures) == ["page.md draws page-a.svg, which is not in drawn/: make docs"]
    refresh(page, pictures)
    assert (pictures / "page-a.svg").read_text(encoding="utf-8") == drawn
    rounded = drawn.replace("0.25", "0.26").replace(">25<", ">26<").replace("t0a1b2c3d", "tffffffff")
    for there, same in ((drawn, True), (rounded, True), (drawn.replace(">25<", ">35<"), False)):
        (pictures / "page-a.svg").write_text(there, encoding="utf-8")
        wrong = check(run(page), pictures)
        assert (wrong == []) is same
    assert wrong[0].startswith("drawn/page-a.svg is not what page.md draws: shown is '35</text>'")
    page.write_text("", encoding="utf-8")
    assert check(run(page), pictures) == ["drawn/page-a.svg is not drawn by page.md: remove it"]

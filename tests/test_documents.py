"""The documents say what is true: their code runs, their generated pages are up to date, their links lead somewhere."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import re
from pathlib import Path

import pytest
from conftest import ROOT

PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")])


def code_blocks(path: Path) -> list[str]:
    return re.findall(r"^```python\n(.*?)^```", path.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)


@pytest.mark.parametrize("path", [p for p in PAGES if code_blocks(p)], ids=lambda p: p.name)
def test_the_code_in_a_document_runs(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("examples", "recipes"):
        (tmp_path / name).symlink_to(ROOT / name)
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    for block in code_blocks(path):
        exec(compile(block, str(path), "exec"), names)
    if path.name == "README.md":
        assert str(names["translation"]) == "I am eating"


def test_generated_pages_are_up_to_date() -> None:
    if f"typer=={importlib.metadata.version('typer')}\n" not in (ROOT / "constraints.txt").read_text(encoding="utf-8"):
        pytest.skip("the help texts are those of the pinned version of typer")
    spec = importlib.util.spec_from_file_location("generate", ROOT / "docs" / "generate.py")
    assert spec is not None
    assert spec.loader is not None
    generate = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(generate)
    for name, page in generate.PAGES.items():
        assert (ROOT / "docs" / name).read_text(encoding="utf-8") == page(), f"docs/{name} is out of date: make docs"


@pytest.mark.parametrize("path", PAGES, ids=lambda p: p.name)
def test_links_lead_somewhere(path: Path) -> None:
    for target in re.findall(r"\]\(([^)#\s]+)[^)]*\)", path.read_text(encoding="utf-8")):
        if not target.startswith(("http:", "https:")):
            assert (path.parent / target).exists(), f"{path.name} links to {target}"


def test_the_tree_in_the_readme_is_the_tree() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    named = set(re.findall(r"^  ([a-z_]+)(?:/|\.py)\s", text, flags=re.MULTILINE))
    there = {p.stem for p in (ROOT / "heedful").iterdir() if not p.name.startswith("_") and p.suffix in ("", ".py")}
    assert named == there


def test_the_example_sentences_are_those_of_the_script() -> None:
    spec = importlib.util.spec_from_file_location("hindi", ROOT / "examples" / "hindi.py")
    assert spec is not None
    assert spec.loader is not None
    hindi = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(hindi)
    every = set(hindi.pairs())
    parts = []
    for name in ("hindi.tsv", "hindi-test.tsv"):
        lines = (ROOT / "examples" / name).read_text(encoding="utf-8").splitlines()
        parts.append({tuple(line.split("\t")) for line in lines})
        assert parts[-1] <= every
    assert not parts[0] & parts[1]
    assert ("मैं खाना खा रहा हूँ", "I am eating") in every

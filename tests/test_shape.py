"""The package stays easy to walk through: small folders, few modules with one importer, one type for each name."""

from __future__ import annotations

import ast
from collections import Counter, defaultdict
from functools import cache

from conftest import ROOT

MODULES_IN_A_FOLDER = 16  # besides __init__.py; cli has one module for each command
MODULES_WITH_ONE_IMPORTER = 40


@cache
def trees() -> dict[str, ast.Module]:
    """Return the parsed modules of the package, by their dotted names."""
    found = {}
    for path in sorted((ROOT / "heedful").rglob("*.py")):
        name = ".".join(path.relative_to(ROOT).with_suffix("").parts)
        found[name] = ast.parse(path.read_text(encoding="utf-8"), str(path))
    return found


def test_no_type_name_is_defined_twice() -> None:
    """A leading underscore does not make another name."""
    places = defaultdict(list)
    for module, tree in trees().items():
        for node in tree.body:
            if isinstance(node, ast.ClassDef):
                places[node.name.lstrip("_")].append(module)
    twice = {name: modules for name, modules in places.items() if len(modules) > 1}
    assert not twice


def test_a_folder_has_few_modules() -> None:
    """A subfolder counts by itself."""
    folders = Counter(name.rpartition(".")[0] for name in trees() if not name.endswith(".__init__"))
    large = {folder: count for folder, count in folders.items() if count > MODULES_IN_A_FOLDER}
    assert set(large) <= {"heedful.cli"}, large


def test_few_modules_have_exactly_one_importer() -> None:
    """A module that one other module imports is often a part of it: merge them, unless it is a concept of its own."""
    importers: dict[str, set[str]] = defaultdict(set)
    for importer, tree in trees().items():
        for node in ast.walk(tree):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom) and node.module:
                inner = [f"{node.module}.{alias.name}" for alias in node.names]
                names = [name if name in trees() else node.module for name in inner]
            for name in names:
                importers[name].add(importer)
    slices = [name for name in trees() if len(importers[name] - {name}) == 1]
    assert len(slices) <= MODULES_WITH_ONE_IMPORTER, "\n".join(f"{n} <- {min(importers[n])}" for n in slices)

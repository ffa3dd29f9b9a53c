"""Collection of the tests: unique names, no test that imports a test, GPU tests without optional packages."""

from __future__ import annotations

import ast
import os
import subprocess
import sys

import pytest
from conftest import ROOT

MISSING = [
    "fastapi",
    "pydantic",
    "uvicorn",
    "starlette",
    "httptools",
    "uvloop",
    "playwright",
    "schemathesis",
    "resvg_py",
]

COLLECT = """
import importlib.util, sys
missing = set(sys.argv[1].split(","))
find_spec = importlib.util.find_spec
importlib.util.find_spec = lambda name, package=None: None if name in missing else find_spec(name, package)

class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in missing:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Missing())
import pytest
sys.exit(pytest.main(["-m", "gpu", "--collect-only", "-q", "-p", "no:cacheprovider", "-rs"]))
"""


@pytest.mark.slow
def test_gpu_tests_are_collected_without_the_packages_of_the_service() -> None:
    done = subprocess.run(
        [sys.executable, "-c", COLLECT, ",".join(MISSING)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        env={**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    assert "tests/test_gpu.py: " in done.stdout


def test_test_modules_have_names_of_their_own() -> None:
    """pytest imports test modules and their helpers by name: two of one name shadow each other."""
    names = [p.name for p in (ROOT / "tests").rglob("*.py")]
    assert sorted({name for name in names if names.count(name) > 1}) == []


def test_no_test_imports_a_test() -> None:
    """What several tests use is in a helper module: pytest rewrites and runs a test module once, under one name."""
    importing = []
    for path in sorted(p for p in (ROOT / "tests").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            names = [a.name for a in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            importing += [f"{path.relative_to(ROOT)}:{node.lineno}: {n}" for n in names if n.startswith("test_")]
    assert importing == []

"""Imports point one way: the table of `docs/lab/design.md`, held to."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import ROOT

PACKAGE = ROOT / "heedful"
# Every room may import those before it, and no other.
ORDER = [
    *(
        "errors",
        "files",
        "client",
        "notation",
        "config",
        "trace",
        "text",
        "metrics",
        "alignment",
        "markup",
        "draw",
        "data",
    ),
    *("attention", "fused", "models", "decoding", "observe", "interop", "training", "translator", "evaluation", "demo"),
    *("serve", "cli", "__main__"),
]
WITHOUT_TORCH = {"errors", "files", "client", "config", "trace", "metrics", "alignment", "markup", "draw"}
TENSORS = {"attention", "fused", "models"}  # know tensors only, never text
# Loaded only by the room that needs them, and there only when it needs them.
LATE = {"triton", "fastapi", "uvicorn", "sentencepiece", "sacrebleu", "transformers", "huggingface_hub"}
LATE |= {"resvg_py", "fontTools", "pydantic", "starlette"}
# Routes are made of types: the room of the service is loaded late as a whole.
WHOLE = {"serve": {"fastapi", "uvicorn", "pydantic", "starlette"}}
FILES = sorted(p.relative_to(ROOT) for p in PACKAGE.rglob("*.py"))


def room(path: Path) -> str:
    return path.parts[1].removesuffix(".py")


def imports(path: Path, top_only: bool = False) -> set[str]:
    """The dotted names that a file imports; `top_only`: as soon as it is loaded itself."""
    tree = ast.parse((ROOT / path).read_text(encoding="utf-8"))
    nodes = list(tree.body) if top_only else [n for n in ast.walk(tree) if isinstance(n, ast.stmt)]
    names: set[str] = set()
    for node in nodes:
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            module = node.module or ""
            names |= {f"{module}.{alias.name}" if module == "heedful" else module for alias in node.names}
    return names


@pytest.mark.parametrize("path", [p for p in FILES if p.name != "__init__.py" or len(p.parts) > 2], ids=str)
def test_a_room_imports_only_from_below(path: Path) -> None:
    here = room(path)
    assert here in ORDER, f"{here} is not in the order of rooms: add it to the design and to this test"
    below = set(ORDER[: ORDER.index(here)])
    if here in TENSORS:
        below &= TENSORS | {"errors", "files", "notation", "config"}
    for name in imports(path):
        parts = name.split(".")
        if parts[0] == "heedful" and len(parts) > 1:
            assert parts[1] in below | {here}, f"{path} imports {name}, which is not below {here}"


def test_training_loads_neither_the_translator_nor_drawing(environment: dict[str, str]) -> None:
    """Neither by an import of its own, nor by one of what it imports."""
    rooms = ("heedful.translator", "heedful.draw")
    script = f"import sys, heedful.training; print([m for m in sys.modules if m.startswith({rooms})])"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, env=environment, check=True)
    assert done.stdout.strip() == "[]"
    for path in FILES:
        if room(path) == "training":
            assert not [n for n in imports(path) if n.startswith(rooms)], path


@pytest.mark.parametrize("path", [p for p in FILES if room(p) in WITHOUT_TORCH], ids=str)
def test_no_torch_in_these_rooms(path: Path) -> None:
    assert not [name for name in imports(path) if name.split(".")[0] == "torch"]


@pytest.mark.parametrize("path", FILES, ids=str)
def test_heavy_packages_are_loaded_late(path: Path) -> None:
    names = imports(path, top_only=True)
    assert not {name.split(".")[0] for name in names} & (LATE - WHOLE.get(room(path), set()))
    if room(path) not in WHOLE:
        assert not [name for name in names if ".".join(name.split(".")[:2]) in {f"heedful.{late}" for late in WHOLE}]


def test_decoding_never_asks_what_the_model_is() -> None:
    for path in FILES:
        if room(path) == "decoding":
            if path.name != "settings.py":  # which asks what a value is
                assert "isinstance" not in (ROOT / path).read_text(encoding="utf-8")
            assert not [n for n in imports(path) if n.startswith("heedful.models.") and n != "heedful.models.protocol"]


@pytest.mark.parametrize("code", ["import heedful", "import heedful.cli.app", "from heedful.cli.app import app"])
def test_nothing_heavy_is_loaded_for_help(code: str, environment: dict[str, str]) -> None:
    heavy = ("torch", "numpy", "sacrebleu", "tokenizers", "rich.progress", "transformers", "fastapi", "http.client")
    script = f"import sys; {code}; print([m for m in {heavy} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, env=environment, check=True)
    assert done.stdout.strip() == "[]"


def test_a_model_is_loaded_without_the_compiler(tiny: Path, environment: dict[str, str]) -> None:
    """PyTorch loads its compiler, for two seconds, where weights without storage are given random numbers."""
    script = (
        f"import sys, heedful; heedful.load({str(tiny)!r}, 'cpu').translate('a'); print('torch._dynamo' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, env=environment, check=True)
    assert done.stdout.strip() == "False"


def test_all_is_the_truth() -> None:
    """Every module's `__all__` lists its public names, and nothing that is not there."""
    import importlib
    import importlib.util

    serves = importlib.util.find_spec("fastapi") is not None
    for path in FILES:
        if path.name == "__main__.py" or (room(path) in WHOLE and not serves):
            continue
        module = importlib.import_module(".".join(path.with_suffix("").parts).removesuffix(".__init__"))
        for name in module.__all__:
            assert hasattr(module, name), f"{path}: {name}"
        tree = ast.parse((ROOT / path).read_text(encoding="utf-8"))
        if path.name == "__init__.py":
            continue
        public = {n.name for n in tree.body if isinstance(n, ast.FunctionDef | ast.ClassDef) and n.name[0] != "_"}
        missing = public - set(module.__all__)
        assert not missing, f"{path}: {missing} are public but not in __all__"

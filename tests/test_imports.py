"""Rooms import in one direction, decoding does not inspect its model, and heavy packages are loaded late."""

from __future__ import annotations

import ast
import importlib
import importlib.util
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from conftest import ROOT

PACKAGE = ROOT / "heedful"
# A room imports only rooms before it.
ORDER = [
    *("errors", "files", "client", "notation", "config", "trace", "text", "metrics", "alignment", "markup", "draw"),
    *("data", "attention", "fused", "models", "decoding", "observe", "interop", "training", "translator"),
    *("evaluation", "bulk", "demo", "serve", "cli", "__main__"),
]
WITHOUT_TORCH = {"errors", "files", "client", "config", "trace", "metrics", "alignment", "markup", "draw"}
TENSORS = {"attention", "fused", "models"}  # know tensors only, never text
# Imported inside the functions that need them.
LATE = {"triton", "fastapi", "uvicorn", "sentencepiece", "sacrebleu", "transformers", "huggingface_hub"}
LATE |= {"resvg_py", "fontTools", "pydantic", "starlette", "gguf", "pyarrow", "zstandard", "ray"}
# Routes are declared with types, so serve imports these at the top, and no room imports serve at the top.
WHOLE = {"serve": {"fastapi", "uvicorn", "pydantic", "starlette"}}
FILES = sorted(p.relative_to(ROOT) for p in PACKAGE.rglob("*.py"))
ROOMS = [p for p in FILES if p != Path("heedful/__init__.py")]
# What imports by a name that is computed.
DYNAMIC = {"import_module", "__import__", "runpy", "exec", "eval", "exec_module", "resolve_name", "imp", "zipimport"}
# Files whose strings name modules for people to read: `heedful info` prints them.
PRINTED = {Path("heedful/fused/triton/policy.py")}
# What tells one class of models from another.
INSPECTION = {"isinstance", "issubclass", "type", "hasattr", "getattr", "vars", "dir", "callable", "inspect"}
INSPECTION |= {"builtins", "singledispatch", "singledispatchmethod", "attrgetter", "AttributeError", "TypeError"}
INSPECTION |= {"family", "config", "modules", "named_modules", "named_children", "_get_name", "get_type_hints"}
INSPECTION |= {"__class__", "__dict__", "__name__", "__qualname__", "__mro__", "__module__", "__getattribute__"}


def room(path: Path) -> str:
    return path.parts[1].removesuffix(".py")


def read(path: Path) -> ast.Module:
    return ast.parse((ROOT / path).read_text(encoding="utf-8"), str(path))


def imports(tree: ast.Module, top_only: bool = False) -> set[str]:
    """Return the dotted names that a module imports, also in functions; `top_only`: as soon as it is loaded."""
    nodes = tree.body if top_only else [n for n in ast.walk(tree) if isinstance(n, ast.stmt)]
    names: set[str] = set()
    for node in nodes:
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            module = "." * node.level + (node.module or "")
            names |= {f"{module}.{alias.name}" if module == "heedful" else module for alias in node.names}
    return names


def named_modules(tree: ast.Module) -> Iterator[str]:
    """Yield the strings that name a module of the package, such as the target of a process; not loggers."""
    loggers = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "getLogger":
            loggers |= {id(argument) for argument in node.args}
    strings = [n for n in ast.walk(tree) if isinstance(n, ast.Constant) and isinstance(n.value, str)]
    yield from (n.value for n in strings if id(n) not in loggers and re.fullmatch(r"heedful\.[\w.]*", n.value))


def identifiers(node: ast.AST) -> Iterator[str]:
    """Yield the names that one node uses: a variable, an attribute, what it imports."""
    if isinstance(node, ast.Name):
        yield node.id
    elif isinstance(node, ast.Attribute):
        yield node.attr
    elif isinstance(node, ast.Import | ast.ImportFrom):
        yield from (part for alias in node.names for part in alias.name.split("."))
        yield from (getattr(node, "module", None) or "").split(".")


def public_names() -> dict[str, str]:
    """Return the room of each name of `heedful`, from the table and the imports of `heedful/__init__.py`."""
    tree = read(Path("heedful/__init__.py"))
    values = {ast.unparse(n.targets[0]): n.value for n in tree.body if isinstance(n, ast.Assign)}
    eager = [n for n in tree.body if isinstance(n, ast.ImportFrom) and (n.module or "").startswith("heedful.")]
    modules = {alias.name: node.module or "" for node in eager for alias in node.names}
    modules |= ast.literal_eval(values["_LAZY"])
    rooms = {name: name for name in ast.literal_eval(values["_ROOMS"])}
    return {name: module.split(".")[1] for name, module in modules.items()} | rooms


def facade_uses(tree: ast.Module) -> Iterator[str]:
    """Yield the names that a module with `import heedful` uses of it; "" where it passes or renames the package."""
    inner = {id(n.value) for n in ast.walk(tree) if isinstance(n, ast.Attribute)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "heedful":
            yield node.attr
        elif isinstance(node, ast.Name) and node.id == "heedful" and isinstance(node.ctx, ast.Load):
            yield from () if id(node) in inner else ("",)
        elif isinstance(node, ast.Import):
            yield from ("" for alias in node.names if alias.name == "heedful" and alias.asname)


def defined_names(tree: ast.Module) -> set[str]:
    """Return the functions, classes and constants that a module defines without an underscore in front."""
    functions = {n.name for n in tree.body if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)}
    assigned = {
        target.id
        for node in tree.body
        if isinstance(node, ast.Assign | ast.AnnAssign)
        for target in (node.targets if isinstance(node, ast.Assign) else [node.target])
        if isinstance(target, ast.Name)
    }
    return {name for name in functions | assigned if name[0] != "_"}


def import_faults(path: Path, tree: ast.Module) -> list[str]:
    """Return what a module of a room imports against the order of rooms, by any means."""
    here = room(path)
    assert here in ORDER, f"{here} is not in the order of rooms: add it to docs/lab/design.md and to this test"
    below = set(ORDER[: ORDER.index(here)])
    if here in TENSORS:
        below &= TENSORS | {"errors", "files", "notation", "config"}
    strings = set() if path in PRINTED else set(named_modules(tree))
    faults = []
    if "heedful" in imports(tree):  # what is used of it is imported from the room that has it
        known = public_names()
        used = {name for name in facade_uses(tree) if known.get(name) not in below | {here}}
        faults += [f"{path} uses heedful{'.' * bool(name)}{name}, which is not before {here}" for name in sorted(used)]
    for name in sorted((imports(tree) - {"heedful"}) | strings):
        first, _, rest = name.partition(".")
        if not first:
            faults.append(f"{path} has a relative import, {name}")
        elif first == "heedful" and rest.partition(".")[0] not in below | {here}:
            faults.append(f"{path} imports {name}, which is not before {here}")
    for node in ast.walk(tree):
        # `.eval()` is a method of models.
        names = set(identifiers(node)) - ({"eval"} if isinstance(node, ast.Attribute) else set())
        faults += [f"{path}:{node.lineno} uses {name}" for name in sorted(names & DYNAMIC)]  # type: ignore[attr-defined]
    return faults


def inspection_faults(path: Path, tree: ast.Module) -> list[str]:
    """Return what a module of decoding uses that could tell models apart."""
    protocol = defined_names(read(Path("heedful/models/protocol.py")))
    faults = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            names = {alias.name for alias in node.names}
            if "heedful.models" in (getattr(node, "module", None) or " ".join(names)) and not names <= protocol:
                faults.append(f"{path} imports {sorted(names - protocol)} from the models, beyond their protocol")
        used = set(identifiers(node)) & INSPECTION | ({"match"} if isinstance(node, ast.MatchClass) else set())
        faults += [f"{path}:{getattr(node, 'lineno', 0)} uses {name}" for name in sorted(used)]
    return faults


@pytest.mark.parametrize("path", ROOMS, ids=str)
def test_a_room_imports_only_rooms_before_it(path: Path) -> None:
    assert import_faults(path, read(path)) == []


@pytest.mark.parametrize(
    ("code", "fault"),
    [
        ("from heedful.cli import main", "heedful.cli"),
        ("from heedful import cli", "heedful.cli"),
        ("import heedful.cli.app as app", "heedful.cli.app"),
        ("import heedful\nheedful.cli.main()", "heedful.cli"),
        ("import heedful\nheedful.serve.run()", "heedful.serve"),
        ("import heedful as package", "heedful"),
        ("import heedful\nuse(heedful)", "heedful"),
        ("import heedful\nasync def f(): heedful.demo()", "heedful.demo"),
        ("from heedful import train", "heedful.train"),
        ("def f():\n    from heedful.cli import main", "heedful.cli"),
        ("if TYPE_CHECKING:\n    from heedful.cli import main", "heedful.cli"),
        ("from . import cli", "relative"),
        ("from ..cli import main", "relative"),
        ("import importlib\nimportlib.import_module(name)", "import_module"),
        ("from importlib import import_module as load", "import_module"),
        ("__import__(name)", "__import__"),
        ("import runpy", "runpy"),
        ("exec(code)", "exec"),
        ("eval(code)", "eval"),
        ("spawn('heedful.cli.app')", "heedful.cli.app"),
        ("spawn(f'heedful.{name}')", "heedful."),
        ("run([sys.executable, '-m', 'heedful.cli'])", "heedful.cli"),
    ],
)
def test_an_import_against_the_order_is_found(code: str, fault: str) -> None:
    faults = import_faults(Path("heedful/serve/example.py"), ast.parse(code))
    assert len(faults) == 1, faults
    assert fault in faults[0]


def test_what_is_no_import_is_not_found() -> None:
    code = "import heedful\nheedful.load('m')\n"
    code += "from heedful.config import Config\nlogging.getLogger('heedful.cli')\nmodel.eval()\nspawn('heedful.serve')"
    assert import_faults(Path("heedful/serve/example.py"), ast.parse(code)) == []


def test_the_lazy_table_is_what_the_package_exports() -> None:
    """`heedful/__init__.py` alone imports by name: modules that exist, in rooms that are no program of their own."""
    import heedful

    tree = read(Path("heedful/__init__.py"))
    values = {
        node.targets[0].id: node.value
        for node in tree.body
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name)
    }
    table: dict[str, str] = ast.literal_eval(values["_LAZY"])
    rooms: tuple[str, ...] = ast.literal_eval(values["_ROOMS"])
    library = ORDER[: ORDER.index("demo")]
    eager = {name for name in imports(tree, top_only=True) if name.startswith("heedful")}
    assert eager <= {"heedful.config", "heedful.errors"}
    loaded = {a.name for n in tree.body if isinstance(n, ast.ImportFrom) and n.module in eager for a in n.names}
    assert sorted([*table, *rooms, *loaded]) == sorted(heedful.__all__)
    assert set(rooms) <= set(library)
    for name, module in table.items():
        assert module.split(".")[1] in library, module
        assert hasattr(importlib.import_module(module), name), f"{name} is not defined by {module}"
    typed = next(n for n in tree.body if isinstance(n, ast.If) and ast.unparse(n.test) == "TYPE_CHECKING")
    assert {a.name for n in typed.body if isinstance(n, ast.ImportFrom) for a in n.names} == {*table, *rooms}
    used = [name for node in ast.walk(tree) for name in identifiers(node) if name in DYNAMIC]
    assert set(used) == {"import_module"}


def test_training_loads_neither_the_translator_nor_drawing(environment: dict[str, str]) -> None:
    """Neither by an import of its own, nor by one of what it imports."""
    rooms = ("heedful.translator", "heedful.draw")
    script = f"import sys, heedful.training; print([m for m in sys.modules if m.startswith({rooms})])"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, env=environment, check=True)
    assert done.stdout.strip() == "[]"
    for path in FILES:
        if room(path) == "training":
            assert not [n for n in imports(read(path)) if n.startswith(rooms)], path


@pytest.mark.parametrize("path", [p for p in FILES if room(p) in WITHOUT_TORCH], ids=str)
def test_no_torch_in_these_rooms(path: Path) -> None:
    assert not [name for name in imports(read(path)) if name.split(".")[0] == "torch"]


@pytest.mark.parametrize("path", FILES, ids=str)
def test_heavy_packages_are_loaded_late(path: Path) -> None:
    names = imports(read(path), top_only=True)
    assert not {name.split(".")[0] for name in names} & (LATE - WHOLE.get(room(path), set()))
    if room(path) not in WHOLE:
        assert not [name for name in names if ".".join(name.split(".")[:2]) in {f"heedful.{late}" for late in WHOLE}]


@pytest.mark.parametrize("path", [p for p in FILES if room(p) == "decoding"], ids=str)
def test_decoding_does_not_inspect_the_model(path: Path) -> None:
    """What decoding does is the same for every model: it calls the protocol, and branches on nothing else."""
    assert inspection_faults(path, read(path)) == []


@pytest.mark.parametrize(
    "code",
    [
        "isinstance(model, Transformer)",
        "issubclass(kind, Transformer)",
        "type(model) is Transformer",
        "hasattr(model, 'cache')",
        "getattr(model, 'cache', None)",
        "model.__class__.__name__",
        "model.family == 'rnn'",
        "model.config.family",
        "vars(model)",
        "match model:\n    case Transformer():\n        pass",
        "try:\n    model.cache\nexcept AttributeError:\n    pass",
        "from functools import singledispatch",
        "from heedful.models.transformer import Transformer",
        "from heedful.models import Transformer",
        "import heedful.models.transformer",
        "check = isinstance",
        "import builtins",
        "class Decoding:\n    def run(self, model):\n        return isinstance(model, Transformer)",
    ],
)
def test_inspection_of_a_model_is_found(code: str) -> None:
    assert inspection_faults(Path("heedful/decoding/example.py"), ast.parse(code))


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
    """`__all__` of a room lists its public functions and classes, and nothing that is not there.

    Rooms are the packages and the modules in `heedful/`. Inside a room only a leading underscore says what is private.
    """
    serves = importlib.util.find_spec("fastapi") is not None
    for path in FILES:
        front = path.name == "__init__.py" or len(path.parts) == 2
        if path.name == "__main__.py" or (room(path) in WHOLE and not serves):
            continue
        module = importlib.import_module(".".join(path.with_suffix("").parts).removesuffix(".__init__"))
        assert hasattr(module, "__all__") == front, path
        if not front:
            continue
        assert len(set(module.__all__)) == len(module.__all__), path
        for name in module.__all__:
            assert hasattr(module, name), f"{path}: {name}"
        public = {n.name for n in read(path).body if isinstance(n, ast.FunctionDef | ast.ClassDef) and n.name[0] != "_"}
        assert public <= set(module.__all__), f"{path}: {public - set(module.__all__)} are public but not in __all__"

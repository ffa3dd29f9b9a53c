"""Writes the parts of the documents that come from the code.

- `docs/reference/`: commands from `--help`, settings and notation from their tables, Python names from docstrings;
- `docs/pictures/rooms.svg`: the rooms of the package and their imports;
- in `docs/lab/design.md`, between comments, the table of rooms and the files that a training step, a translation and a
  drawing visit;
- in all documents that run: what their code prints, and their pictures.

python docs/generate.py [--pages: without running the documents]
"""

from __future__ import annotations

import ast
import dataclasses
import importlib
import inspect
import os
import re
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import heedful
import heedful.attention
import heedful.errors
from heedful.config import MODELS, Config, DataConfig, TextConfig, TrainingConfig
from heedful.notation import markdown
from heedful.training.setup import CHANGEABLE, ON_CPU, PRESETS, apply_preset

__all__ = ["PAGES", "SECTIONS", "fill", "section"]

ROOT = Path(__file__).parent.parent
sys.path[:0] = [str(ROOT / "docs"), str(ROOT / "tests"), str(ROOT / "tests" / "helpers")]

from rooms import first_sentence, imported_rooms, order, picture  # noqa: E402

VERBS = (
    *("", "demo", "corpus", "train", "translate", "see", "evaluate", "compare", "report", "score", "align", "readout"),
    *("info", "convert", "serve"),
)


def commands() -> str:
    """Return the page of all commands."""
    lines = [
        "# The commands",
        "",
        "Made from `--help` by `make docs`; a test keeps this page and the commands the same.",
        "",
        "Results go to standard output, messages to standard error. `--quiet` leaves results and errors,",
        "`--verbose` adds device, threads and timings; commands that print results take `--json`.",
        "`heedful --install-completion` sets up completion for bash, zsh and fish.",
        "",
    ]
    for verb in VERBS:
        name = f"heedful {verb}".strip()
        lines += [f"## `{name}`", "", "```", _help(verb), "```", ""]
    return "\n".join(lines)


def _help(verb: str) -> str:
    command = [sys.executable, "-m", "heedful", *([verb] if verb else []), "--help"]
    environment = {**os.environ, "COLUMNS": "100", "NO_COLOR": "1"}
    done = subprocess.run(command, capture_output=True, text=True, encoding="utf-8", check=True, env=environment)
    return done.stdout.replace("python -m heedful", "heedful").rstrip()


def settings_page() -> str:
    """Return the page of all settings."""
    changeable = ", ".join(f"`{key}`" for key in sorted(CHANGEABLE))
    lines = [
        "# Settings",
        "",
        "Made from the code by `make docs`. Any of them can be given as `--set section.key=value`, or in a TOML file",
        "with `--recipe`; a finished model keeps them in its `config.json`, and `heedful info` prints them. The key",
        "`family` of the section model chooses the kind of model, as `--model` does.",
        "",
        f"A run that is resumed may change {changeable} of the section training, and nothing else.",
        "",
    ]
    sections: list[tuple[str, type[Any]]] = [(f"model, with family = {name}", kind) for name, kind in MODELS.items()]
    sections += [("data", DataConfig), ("text", TextConfig), ("training", TrainingConfig)]
    for title, kind in sections:
        lines += [f"## {title}", "", "| key | default | allowed | meaning |", "|---|---|---|---|"]
        for field in dataclasses.fields(kind):
            lines.append(
                f"| `{field.name}` | {_plain(field.default) or 'none'} | {_allowed(field)} | {field.metadata['doc']} |"
            )
        lines.append("")
    return "\n".join([*lines, *_presets()])


def _presets() -> list[str]:
    """Return for how many pairs each preset is chosen, and what it sets."""
    lines = [
        "## Presets",
        "",
        "`heedful train` takes the one that the pairs fit, counted after cleaning, unless `--preset` names one. What",
        "you set yourself stays as you set it. `none` is what `--recipe` takes, so that a recipe says all it means.",
        "",
        "| preset | pairs | family | on a CPU |",
        "|---|---|---|---|",
    ]
    for name, preset in PRESETS.items():
        pairs = "any" if not preset.pairs else "more" if preset.pairs == float("inf") else f"under {preset.pairs:,}"
        lines.append(f"| {name} | {pairs} | {preset.family} | {ON_CPU.get(name, preset).family} |")
    lines += [
        "",
        "What they set; where nothing stands, the default. `fixed` has what `rnn` has; `none` and `tiny`",
        "set nothing.",
    ]
    for title, device in (
        ("On a GPU:", "cuda"),
        ("On a CPU, which learns from far fewer words in the same time:", "cpu"),
    ):
        lines += ["", title, "", *_table(device)]
    return [*lines, ""]


def _table(device: str) -> list[str]:
    """Return what all presets set on a kind of device."""
    found = {(name, family): _chosen(name, family, device) for name in PRESETS for family in ("rnn", "transformer")}
    columns = [column for column, chosen in found.items() if chosen]
    lines = [f"| key | {' | '.join(', '.join(column) for column in columns)} |", "|---" * (len(columns) + 1) + "|"]
    for key in sorted({key for column in columns for key in found[column]}):
        lines.append(f"| `{key}` | {' | '.join(found[column].get(key, '') for column in columns)} |")
    return lines


def _chosen(name: str, family: str, device: str) -> dict[str, str]:
    """Return the settings of a preset that are not the defaults."""
    plain = Config.build({"model": {"family": family}}).plain()
    return {
        f"{section}.{key}": _plain(value)
        for section, values in apply_preset({"model": {"family": family}}, 0, name, device)[0].plain().items()
        for key, value in values.items()
        if value != plain[section][key]
    }


def _plain(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _allowed(field: dataclasses.Field[object]) -> str:
    if "allowed" in field.metadata:
        return ", ".join(field.metadata["allowed"])
    if isinstance(field.default, bool):
        return "true, false"
    if "weights" in field.metadata:
        return "names with weights"
    return f"{field.metadata['low']:,} to {field.metadata['high']:,}"


def api_page() -> str:
    """Return the page of all public names, with signatures and what their docstrings begin with."""
    lines = [
        "# Python",
        "",
        "The public names of `heedful` and `heedful.attention`. Made from the code by `make docs`;",
        "[python.md](../guide/python.md) shows how to use them.",
        "",
        "## heedful",
        "",
    ]
    for name in heedful.__all__:
        value = getattr(heedful, name)
        if callable(value) and value is not heedful.HeedfulError:  # the errors have a part of their own
            lines += _entry(f"heedful.{name}", value)
    for room in ("attention", "observe"):
        module = importlib.import_module(f"heedful.{room}")
        lines += [f"## heedful.{room}", "", first_sentence(module.__doc__ or ""), ""]
        lines += ["| name | what it is |", "|---|---|"]
        for name in module.__all__:
            lines.append(f"| {_call(f'{name}', getattr(module, name))} | {_summary(getattr(module, name), name)} |")
        lines.append("")
    return "\n".join([*lines, *_errors()])


def _entry(name: str, value: Any) -> list[str]:  # noqa: ANN401
    """Return the lines about a function or a class with its methods."""
    lines = [f"### `{name}`", "", "```", _signature(name, value), "```", "", _summary(value, name), ""]
    members = _members(value) if inspect.isclass(value) else {}
    if members:
        lines += ["| member | what it is |", "|---|---|"]
        lines += [f"| {_call(member, found)} | {_summary(found, member)} |" for member, found in members.items()]
        lines.append("")
    return lines


def _members(kind: type) -> dict[str, Any]:
    """Return the public methods and properties that a class of heedful defines, in the order of the code."""
    found: dict[str, Any] = {}
    for base in reversed(kind.__mro__):
        if base.__module__.startswith("heedful"):
            found |= {name: value for name, value in vars(base).items() if not name.startswith("_")}
    described = (property, classmethod, staticmethod)
    return {n: v for n, v in found.items() if inspect.isfunction(v) or isinstance(v, described)}


def _call(name: str, value: Any) -> str:  # noqa: ANN401
    """Return a name with its arguments, without types: a row of a table."""
    if isinstance(value, classmethod | staticmethod):
        value = value.__func__
    if isinstance(value, property) or not callable(value):
        return f"`{name}`"
    parameters = list(inspect.signature(value).parameters.values())
    if parameters and parameters[0].name in ("self", "cls"):
        del parameters[0]
    plain = [p.replace(annotation=inspect.Parameter.empty) for p in parameters]
    text = str(inspect.Signature([p.replace(default=_Shown(p.default)) if _has_default(p) else p for p in plain]))
    return f"`{name}{text}`".replace("|", "\\|")


def _signature(name: str, value: Any) -> str:  # noqa: ANN401
    """Return how something is called, a parameter a line where it is long."""
    called = inspect.signature(value)
    parameters = [p for p in called.parameters.values() if p.name != "self"]
    parameters = [p.replace(default=_Shown(p.default)) if _has_default(p) else p for p in parameters]
    result = "" if inspect.isclass(value) else f" -> {_annotation(called.return_annotation)}"
    text = str(inspect.Signature(parameters)).replace("'", "")
    if len(name + text + result) <= 100:
        return name + text + result
    separators = [str(inspect.Signature([p]))[1:-1].removeprefix("*, ") for p in parameters]
    star = next((i for i, p in enumerate(parameters) if p.kind is p.KEYWORD_ONLY), None)
    positional = any(p.kind is p.VAR_POSITIONAL for p in parameters)
    lines = [f"    {text}," for text in separators]
    if star is not None and not positional:
        lines.insert(star, "    *,")
    return "\n".join([f"{name}(", *lines, f"){result}"]).replace("'", "")


class _Shown:
    """A default value as a page shows it: short, and the same on every machine."""

    def __init__(self, value: object) -> None:
        self.value = value

    def __repr__(self) -> str:
        if inspect.isfunction(self.value) or inspect.isclass(self.value):
            return self.value.__name__
        text = repr(self.value)
        return "…" if " at 0x" in text or len(text) > 60 else text.replace("'", '"')


def _has_default(parameter: inspect.Parameter) -> bool:
    return parameter.default is not inspect.Parameter.empty


def _annotation(annotation: object) -> str:
    return annotation if isinstance(annotation, str) else getattr(annotation, "__name__", str(annotation))


def _summary(value: Any, name: str) -> str:  # noqa: ANN401
    """Return the first paragraph of a docstring as one line; of a table, its keys."""
    value = value.__func__ if isinstance(value, classmethod | staticmethod) else value
    own = inspect.isfunction(value) or inspect.isclass(value) or isinstance(value, property)
    text = inspect.getdoc(value) if own else "One of " + ", ".join(f"`{key}`" for key in value) + "."
    if not text:
        raise ValueError(f"{name} has no docstring")
    return " ".join(text.split("\n\n")[0].split()).replace("|", "\\|")


def _errors() -> list[str]:
    """Return the tree of errors, from the docstring of the module."""
    text = inspect.cleandoc(heedful.errors.__doc__ or "")
    tree = re.search(r"```.*?```", text, flags=re.DOTALL)
    if tree is None:
        raise ValueError("the docstring of heedful.errors has no tree of errors")
    return ["## Errors", "", first_sentence(text), "All are in `heedful.errors`.", "", tree[0], "", _exit_codes(), ""]


def _exit_codes() -> str:
    return "The command line exits with 1 for a `MachineError`, 2 for every other one, and 130 after Ctrl-C."


PAGES: dict[str, Callable[[], str]] = {
    "reference/cli.md": commands,
    "reference/settings.md": settings_page,
    "reference/notation.md": markdown,
    "reference/api.md": api_page,
    "pictures/rooms.svg": picture,
}


def rooms_table() -> str:
    """Return the table of rooms, in the order in which they may import each other."""
    imported = imported_rooms()
    lines = ["| room | what it does | imports |", "|---|---|---|"]
    for room in order():
        file = ROOT / "heedful" / room
        file = file / "__init__.py" if (file / "__init__.py").exists() else file.with_suffix(".py")
        text = ast.get_docstring(ast.parse(file.read_text(encoding="utf-8"))) or ""
        below = ", ".join(name for name in order() if name in imported[room])
        lines.append(f"| `{room}{'/' if file.name == '__init__.py' else '.py'}` | {first_sentence(text)} | {below} |")
    return "\n".join(lines)


def protocol() -> str:
    """Return what every model implements, with what each method does."""
    from heedful.models.protocol import Seq2Seq

    lines = ["| method | what it does |", "|---|---|"]
    for name, value in vars(Seq2Seq).items():
        if not name.startswith("_") and inspect.isfunction(value):
            result = _annotation(inspect.signature(value).return_annotation).replace("|", "\\|")
            lines.append(f"| {_call(name, value)[:-1]} -> {result}` | {_summary(value, name)} |")
    return "\n".join(lines)


WALKS = {
    "update, rnn": "One update of an RNN, pair → loss → weights",
    "update, transformer": "One update of a Transformer",
    "translation, rnn": "One translation with a beam, text → `Translation`",
    "drawing, rnn": "Drawing it in the terminal, `Translation` → picture",
}


def walk_lists() -> str:
    """Return the files that each walk visits, in the order of the first visit, with what each is for."""
    from walks import walks  # type: ignore[import-not-found]

    measured, lines = walks(), []
    for name, title in WALKS.items():
        files = [*measured[name].files, *measured[name].background]
        lines += [f"**{title}**: {len(files)} files.", ""]
        for i, file in enumerate(files, 1):
            text = ast.get_docstring(ast.parse((ROOT / file).read_text(encoding="utf-8"))) or ""
            item = f"{i}. [`{file.removeprefix('heedful/')}`](../../{file}) {first_sentence(text)}"
            lines += textwrap.wrap(item, 100, subsequent_indent="   ", break_long_words=False, break_on_hyphens=False)
        lines.append("")
    return "\n".join(lines).rstrip()


# Parts of pages that are written by hand: between `<!-- generated: NAME -->` and `<!-- end -->`.
SECTIONS: dict[str, dict[str, Callable[[], str]]] = {
    "lab/design.md": {"rooms": rooms_table, "walks": walk_lists, "protocol": protocol}
}


def section(text: str, name: str) -> str:
    """Return a generated part of a page."""
    return _find(text, name)[2]


def fill(text: str, name: str, content: str) -> str:
    """Return a page with one of its generated parts replaced."""
    found = _find(text, name)
    return text[: found.start(2)] + content + text[found.end(2) :]


def _find(text: str, name: str) -> re.Match[str]:
    found = re.search(rf"(<!-- generated: {name} -->\n\n)(.*?)(?=\n\n<!-- end -->)", text, flags=re.DOTALL)
    if found is None:
        raise ValueError(f"no part <!-- generated: {name} --> with <!-- end --> after it")
    return found


def refresh_documents(folder: Path) -> None:
    """Write the outputs and the pictures of the documents that run anew."""
    from documents import blocks, refresh  # type: ignore[import-not-found]

    for path in sorted(folder.rglob("*.md")):
        if path.relative_to(folder).as_posix() not in PAGES and blocks(path.read_text(encoding="utf-8")):
            refresh(path, folder / "pictures")


def write_pages(folder: Path) -> None:
    """Write the generated pages, and the generated parts of the others."""
    for name, page in PAGES.items():
        (folder / name).write_text(page(), encoding="utf-8")
    for name, parts in SECTIONS.items():
        text = (folder / name).read_text(encoding="utf-8")
        for part, content in parts.items():
            text = fill(text, part, content())
        (folder / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    write_pages(Path(__file__).parent)
    if "--pages" not in sys.argv:
        refresh_documents(Path(__file__).parent)

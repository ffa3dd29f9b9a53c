"""Writes docs/reference/ from the code: `cli.md` from `--help`, `settings.md` and `notation.md` from its tables.

In the documents that run, it writes what their code prints anew, and the pictures that it draws.

python docs/generate.py
"""

from __future__ import annotations

import dataclasses
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from heedful.config import MODELS, Config, DataConfig, TextConfig, TrainingConfig
from heedful.notation import markdown
from heedful.training.setup import CHANGEABLE, ON_CPU, PRESETS, fit

__all__ = ["PAGES"]

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
        for section, values in fit({"model": {"family": family}}, 0, name, device)[0].plain().items()
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


PAGES = {"reference/cli.md": commands, "reference/settings.md": settings_page, "reference/notation.md": markdown}


def refresh_documents(folder: Path) -> None:
    """Write the outputs and the pictures of the documents that run anew."""
    sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))
    from documents import blocks, refresh  # type: ignore[import-not-found]

    for path in sorted(folder.rglob("*.md")):
        if path.relative_to(folder).as_posix() not in PAGES and blocks(path.read_text(encoding="utf-8")):
            refresh(path, folder / "pictures")


if __name__ == "__main__":
    for name, page in PAGES.items():
        (Path(__file__).parent / name).write_text(page(), encoding="utf-8")
    refresh_documents(Path(__file__).parent)

"""`heedful info`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from heedful.cli.options import Json, Model, print_json

__all__ = ["info"]


def info(model: Model, *, json: Json = False) -> None:
    """Tell what a model folder holds, after checking that it is whole."""
    from heedful.folder import about
    from heedful.interop import HUB, fetch, is_marian
    from heedful.translator import load

    folder = fetch(str(model)) if str(model).startswith(HUB) else model
    parts = load(folder, "cpu").parts
    head = _marian(folder) if is_marian(folder) else about(folder)
    record: dict[str, Any] = {
        "path": str(model),
        "format": head["format"],
        "heedful": head.get("heedful"),
        "weights": sum(p.numel() for p in parts.model.parameters()),
        "vocabulary": {"source": len(parts.source), "target": len(parts.target)},
        "notes": head["notes"],
        "config": parts.config.plain(),
        "files": head["files"],
    }
    print_json(record) if json else print(_text(record))


def _marian(folder: Path) -> dict[str, Any]:
    """Return what a heedful folder would say of itself."""
    files = {path.name: {"bytes": path.stat().st_size} for path in sorted(folder.iterdir()) if path.is_file()}
    return {"format": "marian", "notes": {}, "files": files}


def _text(record: dict[str, Any]) -> str:
    vocabulary, notes = record["vocabulary"], record["notes"]
    tokens = f"{vocabulary['source']:,} source tokens, {vocabulary['target']:,} target tokens"
    ours = f"a heedful model (format {record['format']}, written by heedful {record['heedful']})"
    lines = [
        f"{record['path']}: {ours if record['heedful'] else 'a Marian model'}",
        f"{record['weights']:,} weights; {tokens}",
    ]
    if notes.get("pairs"):
        lines.append(f"trained on {notes['pairs']:,} pairs; the weights are those of step {notes['step']:,}")
    if notes.get("init"):
        lines.append(f"the run began with the weights of {notes['init']}")
    if found := notes.get("validation"):
        scores = f"BLEU {found['bleu']:.1f}, loss {found['loss']:.3f}, {found['accuracy']:.1%} of the tokens right"
        lines.append(f"on the held-out pairs: {scores}")
    sections = {name: values for name, values in record["config"].items() if name != "training" or notes}
    for section, values in sections.items():
        lines += ["", f"[{section}]", *(f"{key} = {_toml(value)}" for key, value in values.items())]
    lines += ["", *(f"{facts['bytes']:>12,} bytes  {name}" for name, facts in record["files"].items())]
    return "\n".join(lines)


def _toml(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else repr(value).replace("'", '"')

"""`heedful info`."""

from __future__ import annotations

from typing import Any

from heedful.cli.options import Json, Model, print_json

__all__ = ["info"]


def info(model: Model, *, json: Json = False) -> None:
    """Tell what a model folder holds, after checking that it is whole."""
    from heedful.folder import about, read_model

    head, parts = about(model), read_model(model)
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


def _text(record: dict[str, Any]) -> str:
    vocabulary, notes = record["vocabulary"], record["notes"]
    tokens = f"{vocabulary['source']:,} source tokens, {vocabulary['target']:,} target tokens"
    lines = [
        f"{record['path']}: a heedful model (format {record['format']}, written by heedful {record['heedful']})",
        f"{record['weights']:,} weights; {tokens}",
    ]
    if notes.get("pairs"):
        lines.append(f"trained on {notes['pairs']:,} pairs; the weights are those of step {notes['step']:,}")
    if notes.get("init"):
        lines.append(f"the run began with the weights of {notes['init']}")
    if found := notes.get("validation"):
        scores = f"BLEU {found['bleu']:.1f}, loss {found['loss']:.3f}, {found['accuracy']:.1%} of the tokens right"
        lines.append(f"on the held-out pairs: {scores}")
    for section, values in record["config"].items():
        lines += ["", f"[{section}]", *(f"{key} = {_toml(value)}" for key, value in values.items())]
    lines += ["", *(f"{facts['bytes']:>12,} bytes  {name}" for name, facts in record["files"].items())]
    return "\n".join(lines)


def _toml(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else repr(value).replace("'", '"')

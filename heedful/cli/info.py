"""`heedful info`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from heedful.cli.decoding import say_fault
from heedful.cli.options import Json, print_json
from heedful.errors import printable

if TYPE_CHECKING:
    from heedful.translator import Translator

__all__ = ["info"]

ModelOrNot = Annotated[
    Path | None,
    typer.Argument(
        metavar="MODEL", help="A model folder, or hf:ORG/NAME; without it: this machine.", show_default=False
    ),
]


def info(model: ModelOrNot = None, *, json: Json = False) -> None:
    """Tell what a model folder holds, after checking that it is whole; or what computes on this machine."""
    if model is None:
        machine = _machine()
        print_json(machine) if json else print(_machine_text(machine))
        return
    from heedful.interop import HUB, fetch, is_marian
    from heedful.interop.folder import about
    from heedful.translator import load

    folder = fetch(str(model)) if str(model).startswith(HUB) else model
    translator = load(folder, "cpu", say_fault)
    parts = translator.parts
    head = _marian(folder) if is_marian(folder) else about(folder)
    record: dict[str, Any] = {
        "path": str(model),
        "format": head["format"],
        "heedful": head.get("heedful"),
        "weights": sum(p.numel() for p in parts.model.parameters()),
        "vocabulary": {"source": len(parts.source), "target": len(parts.target)},
        "notes": head["notes"],
        "readout": translator.readout.plain(),
        "config": parts.config.plain(),
        "files": head["files"],
    }
    print_json(record) if json else print(_text(record, [_read_by(translator), *_alarms(translator)]))


def _machine() -> dict[str, Any]:
    """Return versions, devices, and which way every operation takes that has a kernel."""
    import platform

    import torch

    from heedful.config import __version__
    from heedful.fused.triton.policy import paths

    cuda = [torch.cuda.get_device_name(n) for n in range(torch.cuda.device_count())]
    return {
        "heedful": __version__,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "devices": [*cuda, *["mps"] * torch.backends.mps.is_available(), f"cpu, {torch.get_num_threads()} threads"],
        "paths": [way._asdict() for way in paths()],
    }


def _machine_text(machine: dict[str, Any]) -> str:
    rows = [(way["operation"], way["way"], way["why"]) for way in machine["paths"]]
    wide = max(len(name) for name, _, _ in rows)
    return "\n".join(
        [
            f"heedful {machine['heedful']}, PyTorch {machine['torch']}, Python {machine['python']}",
            f"devices: {'; '.join(machine['devices'])}",
            "",
            "what there are kernels for, and what computes it here:",
            *(f"  {name:{wide}}  {way:9}  {why}" for name, way, why in rows),
        ]
    )


def _marian(folder: Path) -> dict[str, Any]:
    """Return what a heedful folder would say of itself."""
    files = {path.name: {"bytes": path.stat().st_size} for path in sorted(folder.iterdir()) if path.is_file()}
    return {"format": "marian", "notes": {}, "files": files}


def _read_by(translator: Translator) -> str:
    """Say how links between words are read from the model, and what that was chosen on."""
    readout, own = translator.readout, translator.parts.readout
    if translator.config.family == "fixed":
        return "links between words cannot be read: it has no attention"
    rules = [f"links between words: {readout}", *readout.rules]
    usual = own is None or own.is_usual(translator.config.model)
    chosen = "not chosen: see heedful readout" if usual else readout.chosen
    return "; ".join(rules) + (f" ({chosen})" if chosen else "")


def _alarms(translator: Translator) -> list[str]:
    """Say which alarms are shown for the model, and how often each was raised for wrong and right translations."""
    if translator.config.family == "fixed":
        return []
    rates = translator.readout.alarms
    if rates is None:
        return ["alarms: all are shown; how well they tell is not measured: see heedful readout"]
    counts = f"{rates.wrong:,} wrong and {rates.right:,} right translations"
    return [f"alarms, by {counts}:", *(f"  {line}" for line in rates.lines())]


def _text(record: dict[str, Any], readout: list[str]) -> str:
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
        bleu = f"BLEU {found['bleu']:.1f}, " if "bleu" in found else ""  # a run that goes by its loss has none
        scores = f"{bleu}loss {found['loss']:.3f}, {found['accuracy']:.1%} of the tokens right"
        lines.append(f"on the held-out pairs: {scores}")
    lines += readout
    sections = {name: values for name, values in record["config"].items() if name != "training" or notes}
    for section, values in sections.items():
        lines += ["", f"[{section}]", *(f"{key} = {_toml(value)}" for key, value in values.items())]
    lines += ["", *(f"{facts['bytes']:>12,} bytes  {name}" for name, facts in record["files"].items())]
    return "\n".join(printable(line, newlines=False) for line in lines)


def _toml(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else repr(value).replace("'", '"')

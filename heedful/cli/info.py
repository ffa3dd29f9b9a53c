"""`heedful info`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

import heedful
from heedful.cli.options import Json, log_fault
from heedful.cli.output import print_json
from heedful.errors import printable

if TYPE_CHECKING:
    from heedful.interop.folder import ModelParts

ModelOrNot = Annotated[
    Path | None,
    typer.Argument(
        metavar="MODEL", help="A model folder, or hf:ORG/NAME; without it: this machine.", show_default=False
    ),
]


def info(model: ModelOrNot = None, *, json: Json = False) -> None:
    """Describe a model folder, or this machine.

    A model is checked, and described with its settings and files; this machine by its devices and kernels.
    """
    if model is None:
        from heedful.training.device_setup import describe_machine

        machine = describe_machine()
        print_json(machine) if json else print(_machine_text(machine))
        return
    from heedful.interop import HUB, fetch, format_of
    from heedful.interop.folder import about

    folder = fetch(str(model)) if str(model).startswith(HUB) else model
    translator = heedful.load(folder, "cpu", log_fault)
    parts = translator.parts
    foreign = format_of(folder)
    head = about(folder) if foreign is None else _foreign(folder, foreign.name)
    record: dict[str, Any] = {
        "path": str(model),
        "format": head["format"],
        "heedful": head.get("heedful"),
        "weights": sum(p.numel() for p in parts.model.parameters()),
        "vocabulary": _vocabularies(parts),
        "notes": head["notes"],
        "remarks": list(parts.remarks),
        "readout": translator.readout.plain(),
        "config": parts.config.plain(),
        "files": head["files"],
    }
    lines = [*_shortlist(parts), _read_by(translator), *_alarms(translator)]
    print_json(record) if json else print(_text(record, lines))


def _vocabularies(parts: ModelParts) -> dict[str, int]:
    """Return the size of each vocabulary; a model of images has none for its source."""
    sizes = {} if parts.config.image is not None else {"source": len(parts.source_codec)}
    return {**sizes, "target": len(parts.target)}


def _shortlist(parts: ModelParts) -> list[str]:
    """Return how many tokens a shortlist leaves to decoding."""
    shortlist = getattr(parts.model, "shortlist", None)
    if shortlist is None:
        return []
    mean = len(shortlist.candidates) / max(1, len(shortlist.offsets) - 1)
    return [
        f"shortlist: decoding writes only {len(shortlist.always)} frequent tokens and, on average, {mean:.0f} "
        "candidates of each source token; --no-shortlist allows all"
    ]


def _machine_text(machine: dict[str, Any]) -> str:
    rows = [(path["operation"], path["way"], path["why"]) for path in machine["paths"]]
    wide = max(len(name) for name, _, _ in rows)
    return "\n".join(
        [
            f"heedful {machine['heedful']}, PyTorch {machine['torch']}, Python {machine['python']}",
            f"devices: {'; '.join(machine['devices'])}",
            "",
            "operations with kernels, and the implementation used here:",
            *(f"  {name:{wide}}  {used:9}  {why}" for name, used, why in rows),
        ]
    )


def _foreign(path: Path, name: str) -> dict[str, Any]:
    """Return the record of a model in another format, as `about` returns that of a heedful one."""
    paths = sorted(path.iterdir()) if path.is_dir() else [path]
    files = {each.name: {"bytes": each.stat().st_size} for each in paths if each.is_file()}
    return {"format": name, "notes": {}, "files": files}


def _read_by(translator: heedful.Translator) -> str:
    """Return how links are read from the attention, and how that was selected."""
    readout, own = translator.readout, translator.parts.readout
    if translator.config.family == "fixed":
        return f"no {'regions of words' if translator.reads_images else 'word links'}: the model has no attention"
    what = "regions of words" if translator.reads_images else "links between words"
    rules = [f"{what}: {readout}", *readout.rules]
    usual = own is None or own.is_usual(translator.config)
    chosen = readout.chosen if readout.chosen or not usual else "the default"
    chosen += "; select one with heedful readout" if usual else ""
    return "; ".join(rules) + (f" ({chosen})" if chosen else "")


def _alarms(translator: heedful.Translator) -> list[str]:
    """Return which alarms are shown, and how often each was raised for wrong and right translations."""
    if translator.config.family == "fixed":
        return []
    rates = translator.readout.alarms
    if rates is None:
        return ["alarms: all are shown; their precision is not measured (heedful readout)"]
    counts = (
        f"{rates.wrong:,} wrong and {rates.right:,} right {'captions' if translator.reads_images else 'translations'}"
    )
    return [f"alarms, by {counts}:", *(f"  {line}" for line in rates.lines())]


def _text(record: dict[str, Any], readout: list[str]) -> str:
    vocabulary, notes = record["vocabulary"], record["notes"]
    if image := record["config"].get("image"):
        side = image["pixels"] // image["patch"]
        reads = f"captions images of {image['pixels']} × {image['pixels']} pixels as {side} × {side} regions"
    else:
        reads = f"{vocabulary['source']:,} source tokens"
    tokens = f"{reads}, {vocabulary['target']:,} target tokens"
    from heedful.interop import FORMATS

    titles = {foreign.name: foreign.title for foreign in FORMATS}
    ours = f"a heedful model (format {record['format']}, written by heedful {record['heedful']})"
    lines = [
        f"{record['path']}: {ours if record['heedful'] else titles[record['format']]}",
        f"{record['weights']:,} weights; {tokens}",
    ]
    lines += record["remarks"]
    if notes.get("pairs"):
        lines.append(
            f"trained on {notes['pairs']:,} {'captions' if image else 'pairs'}; weights of step {notes['step']:,}"
        )
    if notes.get("init"):
        lines.append(f"started from the weights of {notes['init']}")
    if notes.get("teacher"):
        lines.append(
            f"learned the translations of {notes['teacher']} (beam {notes.get('teacher_beam', 1)}; checksum "
            f"{notes.get('teacher_checksum', '')})"
        )
    if scores := notes.get("validation"):
        bleu = (
            f"BLEU {scores['bleu']:.1f}, " if "bleu" in scores else ""
        )  # a run that is validated by its loss has none
        loss = f"loss {scores['loss']:.3f}, token accuracy {scores['accuracy']:.1%}"
        lines.append(f"on the validation {'captions' if image else 'pairs'}: {bleu}{loss}")
    lines += readout
    sections = {name: values for name, values in record["config"].items() if name != "training" or notes}
    for section, values in sections.items():
        lines += ["", f"[{section}]", *(f"{key} = {_toml(value)}" for key, value in values.items())]
    lines += ["", *(f"{facts['bytes']:>12,} bytes  {name}" for name, facts in record["files"].items())]
    return "\n".join(printable(line, newlines=False) for line in lines)


def _toml(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else repr(value).replace("'", '"')

"""Views of traces by name, for one model or several, and the files that pictures are written to."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from heedful.draw import braid, heads, regions, svg
from heedful.draw.picture import Picture, labels_of, stack
from heedful.errors import ConfigError, DataError, choose
from heedful.files import read_json, write_whole
from heedful.trace import Trace
from heedful.trace.trace import SINKS, sinks_apart

# What draws each view. To add one, see CONTRIBUTING.md, "Add a view".
VIEWS: dict[str, Callable[[Trace, str, View], Picture]] = {
    "heatmap": lambda trace, title, how: svg.picture(
        sinks_apart(trace, how.sinks), title, confidence=not (trace.inside or trace.caption)
    ),
    "braid": lambda trace, title, how: braid.picture(sinks_apart(trace, how.sinks), title, mass=how.share(trace)),
    "heads": lambda trace, title, how: heads.picture(trace, title, how.layer, how.head),
    "self": lambda trace, title, how: braid.picture(trace, title, mass=how.share(trace)),
    "regions": lambda trace, title, how: regions.picture(trace, title, how.smooth),
}
ENDINGS = (".svg", ".png", ".html", ".json")
INSIDE_MASS = 0.5  # of self-attention, whose mean over heads is spread over many words
LARGEST = 4000  # side of a picture without a warning


class View(NamedTuple):
    """How to draw: the view, the share of the weight that ribbons show, and the layer and head to enlarge.

    Without a name, captions of images are drawn as regions, and all else as a heat map. `dark` is for .png; .svg and
    .html follow the colour scheme of the viewer. `smooth` interpolates between the weights of regions. `sinks` says
    whether heat maps and braids set sinks apart (`heedful.trace.trace.sinks_apart`).
    """

    name: str = ""
    mass: float | None = None
    layer: int | None = None
    head: int | None = None
    dark: bool = False
    smooth: bool = False
    sinks: str | None = None

    def of(self, traces: Sequence[Trace]) -> View:
        """Return the view with its name, by default that for these traces."""
        images = bool(traces) and all(trace.image is not None for trace in traces)
        return self if self.name else self._replace(name="regions" if images else "heatmap")

    def check(self, traces: Sequence[Trace] = ()) -> None:
        """Raise ConfigError for an unknown view, a wrong share, and for a view that is not for these traces."""
        if self.name:
            choose("view", self.name, VIEWS)
        choose("treatment of sinks", self.sinks or "keep", SINKS)
        if self.mass is not None and not 0 < self.mass <= 1:
            raise ConfigError(f"the share of the weight that is drawn is {self.mass}; it is above 0 and at most 1")
        if self.sinks and any(trace.image is not None for trace in traces):
            raise ConfigError("sinks are those of texts; leave them out for captions of images")
        if self.name == "regions":
            for trace in traces:
                regions.image_of(trace)
        elif self.smooth and self.name:
            raise ConfigError(f"the view '{self.name}' is not smoothed; smooth is for the view 'regions'")
        if self.name == "self" and not all(trace.inside for trace in traces):
            raise ConfigError(
                "the view 'self' is for self-attention, but these are weights of a translation; "
                "choose heatmap, braid or heads"
            )

    def share(self, trace: Trace) -> float:
        """Return the share of each word's weight that ribbons show: `mass`, or the default for the trace."""
        return self.mass or (INSIDE_MASS if trace.inside else braid.MASS)


def view(traces: Sequence[Trace], how: View | None = None, title: str = "", names: Sequence[str] = ()) -> str:
    """Return traces as one SVG document; the same sentence under several models one below the other."""
    return str(picture(traces, how, title, names))


def picture(traces: Sequence[Trace], how: View | None = None, title: str = "", names: Sequence[str] = ()) -> Picture:
    """Return the picture that `view` makes a document of."""
    how = (how or View()).of(traces)
    how.check(traces)
    if how.name == "braid" and any(trace.image is not None for trace in traces):
        raise ConfigError("the view 'braid' is for translations of texts; choose regions or heatmap for a caption")
    names = names or [""] * len(traces)
    if len(names) != len(traces):
        raise DataError(f"{len(names)} names for {len(traces)} traces")
    single = len(traces) == 1
    pictures = [VIEWS[how.name](t, title if single else name, how) for t, name in zip(traces, names, strict=True)]
    titles = dict.fromkeys(labels_of(trace).title for trace in traces)
    whole = stack(pictures, title, " and ".join(titles).capitalize())
    return whole if single else whole._replace(body=regions.embedded_once(whole.body))


def check_path(path: Path) -> None:
    """Raise ConfigError for a file that no picture can be written to."""
    if path.suffix.lower() not in ENDINGS:
        raise ConfigError(f"{path}: pictures are written as {', '.join(ENDINGS)}; choose a name that ends with one")
    if not path.parent.is_dir():
        raise ConfigError(f"{path}: there is no folder {path.parent}")


def write(
    path: Path,
    traces: Sequence[Trace],
    how: View | None = None,
    title: str = "",
    names: Sequence[str] = (),
    font: Path | None = None,
) -> str:
    """Write traces as a picture, a page or a record, by the suffix of the file name; `font` is for .png.

    Return a warning if the picture is too large to view as a whole, or "".
    """
    check_path(path)
    kind = path.suffix.lower()
    if kind == ".json":
        write_whole(path, json.dumps(record(traces, names), ensure_ascii=False).encode("utf-8", "replace"))
        return ""
    if all(trace.words() is None for trace in traces):
        raise ConfigError("this model has no attention weights to draw")
    if kind == ".html":
        from heedful.draw.html import page

        write_whole(path, page(traces, title, how or View(), list(names)).encode("utf-8", "replace"))
        return ""
    document = view(traces, how, title, names)
    if kind == ".png":
        from heedful.draw.png import render

        try:
            pixels = render(document, font, how is not None and how.dark)
        except DataError as error:  # a script without a font
            raise DataError(f"{path}: {error}") from None
        write_whole(path, pixels)
    else:
        write_whole(path, document.encode())
    return too_large(document)


def too_large(document: str) -> str:
    """Return a warning if an SVG document is too large to view as a whole, or ""."""
    wide, high = (float(n) for n in re.findall(r' (?:width|height)="([\d.]+)"', document[: document.index(">")]))
    if max(wide, high) <= LARGEST:
        return ""
    return (
        f"this picture is {wide:,.0f} units wide and {high:,.0f} high, too large to view as a whole: "
        "write .html, which scrolls, or draw one sentence at a time"
    )


def record(traces: Sequence[Trace], names: Sequence[str]) -> dict[str, Any]:
    """Return the record as JSON can hold it: one trace, or several with their names."""
    if len(traces) == 1:
        return traces[0].plain()
    return {"names": list(names), "traces": [trace.plain() for trace in traces]}


def read_traces(path: Path) -> tuple[list[Trace], list[str]]:
    """Return the traces of a .json file of `write`, and their names."""
    try:
        plain = read_json(path, DataError)
    except OSError as error:
        raise DataError(f"{path}: this is not a trace: {error.strerror}") from None
    except DataError as error:
        raise DataError(f"{error}; this is not a trace") from None
    if not isinstance(plain, dict):
        raise DataError(f"{path}: this is not a trace: expected a JSON object")
    try:
        if "traces" not in plain:
            return [Trace.build(plain)], [path.stem]
        traces = [Trace.build(one) for one in plain["traces"]]
        names = [str(name) for name in plain.get("names") or [""] * len(traces)]
    except DataError as error:
        raise DataError(f"{path}: {error}") from None
    except TypeError:
        raise DataError(f"{path}: this is not a trace: its traces are not a list") from None
    if not traces or len(names) != len(traces):
        raise DataError(f"{path}: {len(names)} names for {len(traces)} traces")
    return traces, names

"""The rooms of the package and their imports, read from the code, and the picture of them.

The picture is a layered drawing: rooms in rows, each above all that it imports. All lines to one room join into one
trunk, which passes between the boxes of the rows above it, so that a colour can be followed upwards to the importers.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence
from pathlib import Path

import heedful

__all__ = ["first_sentence", "imported_rooms", "order", "picture"]

ROOT = Path(__file__).parent.parent
# Rooms that nearly all others import: dots inside the boxes instead of lines.
EVERYWHERE = {"errors": "#b5443a", "files": "#c98a1b", "config": "#3f7f5f", "trace": "#5b5ea6"}
COLOURS = ("#1f6f8b", "#b5651d", "#6b4c9a", "#3d7a3d", "#a8325e", "#4a5a75", "#8a7a1f", "#2255c4", "#c2185b", "#00796b")
WIDTH, BOX_WIDTH, BOX_HEIGHT, ROW, TRUNK = 1000, 98, 40, 96, 16
Node = tuple[str, int]  # a room and a row: the box of the room in its own row, its trunk in the rows above


def order() -> list[str]:
    """Return the rooms in the order that `tests/test_imports.py` holds them to, the lowest first."""
    tree = ast.parse((ROOT / "tests" / "test_imports.py").read_text(encoding="utf-8"))
    for node in tree.body:
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "ORDER":
            rooms = eval(compile(ast.Expression(node.value), "ORDER", "eval"), {})  # a list of names, no code of others
            return [room for room in rooms if not room.startswith("_")]
    raise ValueError("tests/test_imports.py has no ORDER")


def imported_rooms() -> dict[str, set[str]]:
    """Return for every room the other rooms that its files import, also through `import heedful`."""
    found: dict[str, set[str]] = {room: set() for room in order()}
    for path in sorted((ROOT / "heedful").rglob("*.py")):
        room = path.relative_to(ROOT / "heedful").parts[0].removesuffix(".py")
        if room.startswith("_"):
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            names: list[str] = []
            if isinstance(node, ast.ImportFrom) and node.module:
                whole = node.module == "heedful"
                names = [f"heedful.{alias.name}" for alias in node.names] if whole else [node.module]
            elif isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.Attribute) and ast.unparse(node.value) == "heedful":  # heedful.load
                names = [heedful._LAZY.get(node.attr, f"heedful.{node.attr}")]
            rooms = {name.split(".")[1] for name in names if name.startswith("heedful.")}
            found[room] |= (rooms & set(found)) - {room}
    return found


def first_sentence(text: str) -> str:
    """Return the first sentence of a docstring, with a full stop."""
    paragraph = " ".join(text.strip().split("\n\n")[0].split())
    match = re.match(r".+?\.(?=\s+[A-Z`]|$)", paragraph)
    return (match[0] if match else paragraph).rstrip(".:") + "."


def picture() -> str:
    """Return the rooms and their imports as an SVG."""
    imported = imported_rooms()
    edges = {room: {b for b in imported[room] if b not in EVERYWHERE} for room in order() if room not in EVERYWHERE}
    level = _levels(edges)
    links = _links(edges, level)
    x = _places(links, level)
    top = max(level.values())
    height = ROW * (top + 2) + 44
    y = {n: 44.0 + ROW * (top - n) for n in range(top + 1)}
    label = "The rooms of heedful; imports point down"
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}"'
        f' role="img" aria-label="{label}"'
        ' font-family="system-ui, -apple-system, Segoe UI, Helvetica, Arial, sans-serif">',
        f'<rect width="{WIDTH}" height="{height}" rx="12" fill="#ffffff"/>',
    ]
    colours = {room: COLOURS[i % len(COLOURS)] for i, room in enumerate(edges)}
    for upper, lower in links:
        lines.append(_curve(x[upper], y[upper[1]], x[lower], y[lower[1]], colours[lower[0]]))
    for room, n in dict.fromkeys(lower for _, lower in links):
        if level[room] != n:  # a trunk goes straight through its row
            lines.append(_line(x[room, n], y[n], colours[room]))
    for room, n in level.items():
        lines.append(_box(room, x[room, n], y[n], imported[room], colours[room]))
    return "\n".join([*lines, *_bottom(imported, height), "</svg>", ""])


def _levels(edges: dict[str, set[str]]) -> dict[str, int]:
    """Return the row of each room, from 0: one above the highest that it imports."""
    level: dict[str, int] = {}
    for room, below in edges.items():
        level[room] = 1 + max((level[other] for other in below), default=-1)
    return level


def _links(edges: dict[str, set[str]], level: dict[str, int]) -> list[tuple[Node, Node]]:
    """Return the lines from each row to the next: from a box or a trunk to a box or a trunk."""
    links: dict[tuple[Node, Node], None] = {}
    for room, below in edges.items():
        for other in sorted(below, key=list(edges).index):
            links[(room, level[room]), (other, level[room] - 1)] = None
            for n in range(level[room] - 1, level[other], -1):
                links[(other, n), (other, n - 1)] = None
    return list(links)


def _places(links: Sequence[tuple[Node, Node]], level: dict[str, int]) -> dict[Node, float]:
    """Return where across the picture the middle of each box and trunk lies.

    The order in a row follows the mean place of what a node is linked with in the rows around it.
    """
    nodes = list(dict.fromkeys([*level.items(), *(node for link in links for node in link)]))
    near: dict[Node, list[Node]] = {node: [] for node in nodes}
    for upper, lower in links:
        near[upper].append(lower)
        near[lower].append(upper)
    rows = [[node for node in nodes if node[1] == n] for n in range(max(level.values()) + 1)]
    x = {node: WIDTH * (i + 1) / (len(row) + 1) for row in rows for i, node in enumerate(row)}
    sizes = {node: float(BOX_WIDTH + 14 if level[node[0]] == node[1] else TRUNK) for node in nodes}
    for sweep in range(60):
        for row in rows if sweep % 2 else reversed(rows):
            wanted = {node: sum(x[o] for o in near[node]) / len(near[node]) if near[node] else x[node] for node in row}
            if sweep < 40:
                row.sort(key=lambda node: (wanted[node], node[0]))
            x |= zip(row, _apart([wanted[node] for node in row], [sizes[node] for node in row]), strict=True)
    low, high = min(x[n] - sizes[n] / 2 for n in nodes), max(x[n] + sizes[n] / 2 for n in nodes)
    return {node: 12 + (place - low) * (WIDTH - 24) / (high - low) for node, place in x.items()}


def _apart(wanted: list[float], sizes: list[float]) -> list[float]:
    """Return the places nearest to those wanted, in the same order, that leave every node its size."""
    offsets = [sum(sizes[:i]) + sizes[i] / 2 for i in range(len(sizes))]
    groups: list[list[float]] = []  # sum and count of neighbours that touch: the mean of a group is its place
    for place, offset in zip(wanted, offsets, strict=True):
        groups.append([place - offset, 1.0])
        while len(groups) > 1 and groups[-2][0] / groups[-2][1] > groups[-1][0] / groups[-1][1]:
            total, count = groups.pop()
            groups[-1] = [groups[-1][0] + total, groups[-1][1] + count]
    starts = [total / count for total, count in groups for _ in range(int(count))]
    return [start + offset for start, offset in zip(starts, offsets, strict=True)]


def _curve(x1: float, y1: float, x2: float, y2: float, colour: str) -> str:
    """Return a line from the lower edge of one row to the upper edge of the next."""
    y1, y2 = y1 + BOX_HEIGHT / 2, y2 - BOX_HEIGHT / 2
    middle = (y1 + y2) / 2
    path = f"M{x1:.0f} {y1:.0f}C{x1:.0f} {middle:.0f} {x2:.0f} {middle:.0f} {x2:.0f} {y2:.0f}"
    return f'<path d="{path}" fill="none" stroke="{colour}" stroke-width="1.5" stroke-opacity="0.75"/>'


def _line(x: float, y: float, colour: str) -> str:
    """Return the part of a trunk that passes a row."""
    path = f"M{x:.0f} {y - BOX_HEIGHT / 2:.0f}V{y + BOX_HEIGHT / 2:.0f}"
    return f'<path d="{path}" fill="none" stroke="{colour}" stroke-width="1.5" stroke-opacity="0.75"/>'


def _box(room: str, x: float, y: float, imported: set[str], colour: str) -> str:
    """Return a box with a name, and a dot for each of the rooms that nearly all import."""
    used = [name for name in EVERYWHERE if name in imported]
    dots = "".join(
        f'<circle cx="{x + (i - (len(used) - 1) / 2) * 11:.0f}" cy="{y + 11:.0f}" r="3" fill="{EVERYWHERE[name]}"/>'
        for i, name in enumerate(used)
    )
    return (
        f'<rect x="{x - BOX_WIDTH / 2:.0f}" y="{y - BOX_HEIGHT / 2:.0f}" width="{BOX_WIDTH}" height="{BOX_HEIGHT}"'
        f' rx="7" fill="#f6f8fb" stroke="{colour}" stroke-width="1.5"/>{_text(room, x, y + 1, 14, "#16202c")}{dots}'
    )


def _text(text: str, x: float, y: float, size: int, colour: str) -> str:
    return f'<text x="{x:.0f}" y="{y:.0f}" text-anchor="middle" font-size="{size}" fill="{colour}">{text}</text>'


def _bottom(imported: dict[str, set[str]], height: int) -> list[str]:
    """Return the row of rooms that nearly all import, each in the colour of its dots, and the legend."""
    lines = []
    for i, (room, colour) in enumerate(EVERYWHERE.items()):
        x, y = WIDTH * (i + 1) / (len(EVERYWHERE) + 1), height - 66
        count = sum(room in below for below in imported.values())
        lines.append(
            f'<rect x="{x - 70:.0f}" y="{y - 20:.0f}" width="140" height="40" rx="7" fill="{colour}"/>'
            f"{_text(room, x, y - 2, 14, '#ffffff')}{_text(f'imported by {count}', x, y + 13, 11, '#ffffff')}"
        )
    note = "Imports point down. All lines to one room have the colour of its box; dots are imports of the last row."
    return [*lines, _text(note, WIDTH / 2, height - 16, 12, "#44546a")]

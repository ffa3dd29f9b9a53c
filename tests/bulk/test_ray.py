"""Units on a Ray cluster of local nodes: workers, a node and the driver are killed, and every row is there once."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from conftest import ROOT

import heedful
from heedful.errors import ConfigError, MachineError

os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
ray = pytest.importorskip("ray", reason="heedful[ray] is not installed")

pytestmark = pytest.mark.slow


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Three nodes with one CPU each; Python there imports this checkout."""
    from ray.cluster_utils import Cluster

    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setenv("no_proxy", "*")
    nodes = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
    for _ in range(2):
        nodes.add_node(num_cpus=1)
    yield nodes
    ray.shutdown()
    nodes.shutdown()


@pytest.fixture
def files(tmp_path: Path) -> list[Path]:
    paths = []
    for number in range(12):
        paths.append(tmp_path / "in" / f"{number:02}.jsonl")
        paths[-1].parent.mkdir(exist_ok=True)
        rows = [{"id": f"{number}-{row}", "text": "a b c d e f"[: 1 + 2 * (row % 6)]} for row in range(1000)]
        paths[-1].write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return paths


def outputs(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}


def workers() -> list[int]:
    """Return the processes of Ray that run a unit now."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if b"ray::_translate" in (process / "cmdline").read_bytes():
                found.append(int(process.name))
        except OSError:
            continue
    return found


def check_rows(folder: Path, files: list[Path]) -> None:
    """Check that every row of the inputs is in the outputs, once and in its place."""
    for file in files:
        before = [json.loads(line)["id"] for line in file.read_text(encoding="utf-8").splitlines()]
        after = [json.loads(line) for line in (folder / file.name).read_text(encoding="utf-8").splitlines()]
        assert [row["id"] for row in after] == before
        assert all(row["translation"] is not None for row in after)


def test_killed_workers_and_a_killed_node(cluster: Any, tiny: Path, tmp_path: Path, files: list[Path]) -> None:
    heedful.translate_files(tiny, files, tmp_path / "plain", threads=1, device="cpu")
    killed: list[str] = []

    def kill(state: Any) -> None:
        if not killed:
            for process in workers()[:1]:
                os.kill(process, signal.SIGKILL)
                killed.append("worker")
        elif len(killed) == 1 and state.units >= 3:
            cluster.remove_node(cluster.list_all_nodes()[-1], allow_graceful=False)
            killed.append("node")

    report = heedful.translate_files(tiny, files, tmp_path / "out", threads=1, ray=cluster.address, progress=kill)
    assert killed == ["worker", "node"]
    assert (len(report.outputs), report.rows) == (12, 12_000)
    check_rows(tmp_path / "out", files)
    assert outputs(tmp_path / "out") == outputs(tmp_path / "plain")


def test_a_killed_driver(
    cluster: Any, tiny: Path, tmp_path: Path, files: list[Path], environment: dict[str, str]
) -> None:
    command = [sys.executable, "-m", "heedful", "translate", tiny, *files, "--threads", "1", "--ray", cluster.address]
    arguments = [*map(str, command), "--out", str(tmp_path / "out")]
    environment |= {"no_proxy": "*"}
    with subprocess.Popen(arguments, env=environment) as driver:
        while driver.poll() is None and len(list((tmp_path / "out").glob("*.jsonl"))) < 4:
            time.sleep(0.01)
        driver.send_signal(signal.SIGKILL)
    assert driver.returncode == -signal.SIGKILL
    done = subprocess.run(arguments, env=environment, capture_output=True, text=True, check=True)
    assert "were done before" in done.stderr
    check_rows(tmp_path / "out", files)
    heedful.translate_files(tiny, files, tmp_path / "plain", threads=1, device="cpu")
    assert outputs(tmp_path / "out") == outputs(tmp_path / "plain")


def test_faults_on_workers(cluster: Any, tiny: Path, tmp_path: Path, files: list[Path]) -> None:
    """A damaged input fails alone; a model that changes under the run, and a Translator, are refused."""
    bad = tmp_path / "in" / "bad.jsonl.gz"
    bad.write_bytes(b"\x1f\x8b" + bytes(100))
    with pytest.raises(heedful.HeedfulError, match=r"bad\.jsonl\.gz"):
        heedful.translate_files(tiny, [*files[:2], bad], tmp_path / "out", ray=cluster.address)
    check_rows(tmp_path / "out", files[:2])
    with pytest.raises(ConfigError, match="not a Translator"):
        heedful.translate_files(heedful.load(tiny, "cpu"), files[:3], tmp_path / "out", ray=cluster.address)


def test_no_cluster_at_an_address(tiny: Path, tmp_path: Path, files: list[Path]) -> None:
    with pytest.raises(MachineError, match="no Ray cluster at 'auto'"):
        heedful.translate_files(tiny, files, tmp_path / "out", ray="auto")

"""Worker processes that share a device: the same bytes as one process, and what happens when a worker fails."""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

import heedful
from heedful.bulk.rows import MOST_WORKERS, BulkSettings, SharedModel, memory_share, sharing_memory
from heedful.errors import ConfigError, HeedfulError


@pytest.fixture
def rows(tmp_path: Path) -> Path:
    """Three portions and a bit, of a text that is null, one that is refused, and others."""
    file = tmp_path / "in.jsonl"
    texts = [None, "a b c", 7, *("a b c d e f"[: 1 + 2 * (i % 6)] for i in range(3_300))]
    file.write_text("".join(json.dumps({"id": i, "text": text}) + "\n" for i, text in enumerate(texts)), "utf-8")
    return file


def children() -> list[int]:
    """The workers of this process."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            parent = int((process / "stat").read_text().rpartition(")")[2].split()[1])
            if parent == os.getpid() and b"heedful.data.workers" in (process / "cmdline").read_bytes():
                found.append(int(process.name))
        except OSError:
            continue
    return found


def test_the_bytes_do_not_depend_on_the_number_of_workers(tiny: Path, rows: Path, tmp_path: Path) -> None:
    reports = {
        workers: heedful.translate_files(
            tiny, rows, tmp_path / f"{workers}.jsonl", alignments=True, workers=workers, threads=1, device="cpu"
        )
        for workers in (1, 2)
    }
    assert (tmp_path / "1.jsonl").read_bytes() == (tmp_path / "2.jsonl").read_bytes()
    for report in reports.values():
        assert (report.rows, report.null, report.refused) == (3_303, 1, 1)
    assert not children()


def test_progress_goes_on_in_order_with_workers(tiny: Path, rows: Path, tmp_path: Path) -> None:
    seen: list[tuple[int, float]] = []
    heedful.translate_files(
        tiny,
        rows,
        tmp_path / "out",
        workers=2,
        threads=1,
        device="cpu",
        progress=lambda state: seen.append((state.rows, state.share)),
    )
    assert seen == sorted(seen)
    assert seen[-1] == (3_303, 1.0)
    assert len(seen) >= 4


def test_workers_are_kept_from_file_to_file(tiny: Path, rows: Path, tmp_path: Path) -> None:
    again = tmp_path / "in2.jsonl"
    again.write_bytes(rows.read_bytes())
    small = tmp_path / "in3.jsonl"
    small.write_text(json.dumps({"text": "a b"}) + "\n", "utf-8")
    seen: dict[str, set[int]] = {}
    options = {"workers": 2, "threads": 1, "device": "cpu"}
    heedful.translate_files(
        tiny,
        [rows, again, small],
        tmp_path / "out",
        progress=lambda state: seen.setdefault(state.unit, set()).update(children()),
        **options,
    )
    assert len(seen["in.jsonl"]) == 2
    assert seen["in.jsonl"] == seen["in2.jsonl"]
    assert (tmp_path / "out" / "in.jsonl").read_bytes() == (tmp_path / "out" / "in2.jsonl").read_bytes()
    assert not children()


def kill_one() -> Iterator[int]:
    until = time.monotonic() + 60
    while time.monotonic() < until:
        if workers := children():
            os.kill(workers[0], signal.SIGKILL)
            yield workers[0]
            return
        time.sleep(0.01)


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="processes are found in /proc")
def test_a_worker_that_is_killed_fails_its_file_and_the_same_call_goes_on(
    tiny: Path, rows: Path, tmp_path: Path
) -> None:
    other = tmp_path / "other.jsonl"
    other.write_text(json.dumps({"text": "a b"}) + "\n", "utf-8")
    killed: list[int] = []
    thread = threading.Thread(target=lambda: killed.extend(kill_one()))
    thread.start()
    options = {"workers": 2, "threads": 1, "device": "cpu"}
    with pytest.raises(HeedfulError, match=r"in\.jsonl.*worker process ended with status -9"):
        heedful.translate_files(tiny, [rows, other], tmp_path / "out", **options)
    thread.join()
    assert killed
    assert (tmp_path / "out" / "other.jsonl").exists()
    assert not (tmp_path / "out" / "in.jsonl").exists()
    report = heedful.translate_files(tiny, [rows, other], tmp_path / "out", **options)
    assert (report.before, report.rows) == (1, 3_303)
    heedful.translate_files(tiny, [rows, other], tmp_path / "plain", workers=1, threads=1, device="cpu")
    assert (tmp_path / "out" / "in.jsonl").read_bytes() == (tmp_path / "plain" / "in.jsonl").read_bytes()
    assert not children()


def test_a_translator_cannot_be_opened_by_workers(tiny: Path, rows: Path, tmp_path: Path) -> None:
    translator = heedful.load(tiny, "cpu", threads=1)
    with pytest.raises(ConfigError, match="workers is 2.*folder"):
        heedful.translate_files(translator, rows, tmp_path / "out", workers=2)
    assert heedful.translate_files(translator, rows, tmp_path / "one", workers=1).rows == 3_303


def test_a_worker_opens_the_same_model_or_none(tiny: Path) -> None:
    shared = SharedModel((str(tiny),), "cpu", 1, "another", BulkSettings(), 4096, False)
    with pytest.raises(ConfigError, match="not the same"):
        shared.open()


@pytest.mark.parametrize("workers", [-1, 1.5, "2"])
def test_what_workers_may_be(tiny: Path, rows: Path, tmp_path: Path, workers: object) -> None:
    with pytest.raises(ConfigError, match="workers"):
        heedful.translate_files(tiny, rows, tmp_path / "out", workers=workers)  # type: ignore[arg-type]


def test_an_option_for_files_only(tiny: Path, heedful_cli) -> None:
    done = heedful_cli("translate", tiny, "a b", "--workers", "2")
    assert done.code == 2
    assert "--workers" in done.err
    assert "--out" in done.err


def test_on_a_cpu_there_is_one_process(tiny: Path, rows: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def forbidden(*_: object) -> None:
        raise AssertionError("a worker was started")

    monkeypatch.setattr("heedful.bulk.rows.WorkerPool", forbidden)
    heedful.translate_files(tiny, rows, tmp_path / "out", threads=1, device="cpu")
    assert MOST_WORKERS > 1


def test_runs_side_by_side_have_workers_of_their_own(tiny: Path, rows: Path, tmp_path: Path) -> None:
    errors: list[HeedfulError] = []

    def run(number: int) -> None:
        try:
            heedful.translate_files(
                tiny, rows, tmp_path / f"{number}.jsonl", workers=2, threads=1, device="cpu", alignments=number == 1
            )
        except HeedfulError as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(number,)) for number in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors
    assert len((tmp_path / "0.jsonl").read_text("utf-8").splitlines()) == 3_303
    assert len((tmp_path / "1.jsonl").read_text("utf-8").splitlines()) == 3_303
    assert not children()


def test_the_number_of_workers_is_recorded(tiny: Path, rows: Path, tmp_path: Path) -> None:
    heedful.translate_files(tiny, rows, tmp_path / "out", workers=2, threads=1, device="cpu")
    run = json.loads(next((tmp_path / "out").rglob("run.json")).read_text("utf-8"))
    assert run["workers"] == 2


def test_processes_that_share_a_gpu_have_the_same_share() -> None:
    assert [round(8 * memory_share(workers), 2) for workers in (1, 3, 7)] == [3.8, 1.9, 0.95]
    with sharing_memory(torch.device("cpu"), 3):
        pass  # nothing is divided on a CPU

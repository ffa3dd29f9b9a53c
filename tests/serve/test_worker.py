"""Another process writes: the answers are the same, and it is missed by nobody when it is gone."""

from __future__ import annotations

import os
import signal
import sys
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from running import children, process, running, until, with_worker

import heedful
from heedful.client import Client
from heedful.serve.limits import Limits

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="there is one process on Windows")
LONG = "a b c d e f g h"


def test_the_answers_are_those_of_the_translator(tiny: Path) -> None:
    local = heedful.load(tiny, "cpu")
    texts = [" ".join("abcdefgh"[(i * j) % 8] for j in range(1, 3 + i % 8)) for i in range(80)]

    def one(i: int) -> None:
        client = Client(service.url, timeout=60)
        prefix = "A" if i % 7 == 0 else None
        item = client.translate(texts[i], alignments=i % 3 == 0, prefix=prefix)
        wanted = local.translate(texts[i], prefix=prefix)
        assert (item["source"], item["text"]) == (texts[i], wanted.text)
        assert item["score"] == pytest.approx(wanted.score, abs=1e-3)
        client.close()

    with with_worker(tiny) as (service, worker), ThreadPoolExecutor(16) as pool:
        list(pool.map(one, range(80)))
        metrics = service.service.metrics
        assert metrics.sentences == 80
        assert 0 < metrics.steps < 80 * 10, "nothing was written together"
        assert "heedful_writing_process 1" in metrics.text(service.service.gauges())
        assert not service.service.engine.scheduler.batches
        assert worker.process.poll() is None
        # What cannot flow is written here.
        assert service.client.translate("a b", beam=3, n_best=2)["alternatives"]
        assert [kind for kind, _ in service.client.stream("a b")][-1] == "done"
    assert worker.process.poll() is not None, "it outlives the service"


def test_when_it_is_gone_the_service_writes_itself(tiny: Path, caplog: pytest.LogCaptureFixture) -> None:
    local = heedful.load(tiny, "cpu")
    with with_worker(tiny, Limits(batch_rows=4)) as (service, worker), ThreadPoolExecutor(1) as pool:
        os.kill(worker.process.pid, signal.SIGSTOP)  # so that it has sentences when it dies
        asked = pool.submit(service.client.translate, [LONG, "a b", "c", "d e f", "g h", "a"])
        until(lambda: sum(len(batch.live) for batch in service.service.engine.scheduler.batches) == 4)
        worker.process.kill()
        wanted = [one.text for one in local.translate([LONG, "a b", "c", "d e f", "g h", "a"])]
        assert [item["text"] for item in asked.result()] == wanted
        assert service.client.translate(LONG)["text"] == local.translate(LONG).text
        assert service.client.ready()
        until(lambda: "the worker process is gone" in caplog.text)


def test_who_goes_away_is_not_written(tiny: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("heedful.serve.engine.worker_client.SILENT", 30)
    with with_worker(tiny, Limits(seconds=1)) as (service, worker):
        os.kill(worker.process.pid, signal.SIGSTOP)
        with pytest.raises(heedful.errors.HeedfulError, match="took longer"):
            service.client.translate(LONG)
        scheduler = service.service.engine.scheduler
        until(lambda: not scheduler.batches, 5)
        assert service.service.metrics.cancelled == 1
        os.kill(worker.process.pid, signal.SIGCONT)
        # Had it been written nevertheless, the answer would be for nobody: no name is used again.
        before = worker.next_id
        assert service.client.translate("a")["text"] == service.service.models.models["m"].translate("a").text
        assert 0 < before < worker.next_id


def test_one_that_cannot_start_is_said(tmp_path: Path, tiny: Path, caplog: pytest.LogCaptureFixture) -> None:
    with running({"m": heedful.load(tiny, "cpu")}, folders={"m": str(tmp_path / "nowhere")}) as service:
        until(lambda: "the worker process is gone" in caplog.text)
        assert service.client.translate("a")["text"]
        assert service.client.ready()


@pytest.mark.parametrize("kind", ["kill", "interrupt"])
def test_it_ends_with_the_service(tiny: Path, kind: str) -> None:
    with process(str(tiny)) as (service, url):
        until(lambda: b"heedful_writing_process 1" in urllib.request.urlopen(f"{url}/metrics").read())
        (other,) = children(service.pid)
        if kind == "kill":
            service.kill()
        else:
            os.kill(other, signal.SIGINT)  # as a terminal does, to both
            service.send_signal(signal.SIGINT)
            assert service.wait(20) == 0
            assert service.stderr is not None
            assert "Traceback" not in service.stderr.read()
        until(lambda: not Path(f"/proc/{other}").exists() or "zombie" in Path(f"/proc/{other}/status").read_text(), 20)

"""The process: how it starts, what it refuses, and that a signal loses nothing that was accepted."""

from __future__ import annotations

import http.client
import json
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from conftest import ROOT, Done
from random_translators import random_folder
from running import process

import heedful


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return random_folder(tmp_path_factory.mktemp("serve") / "small", "transformer")


class Load:
    """Clients that ask without end, each by one connection: what became of every request they sent whole."""

    def __init__(self, url: str, clients: int) -> None:
        self.place, self.found, self.stop = urlsplit(url).netloc, [], threading.Event()
        self.threads = [threading.Thread(target=self.ask, args=(i,)) for i in range(clients)]
        for thread in self.threads:
            thread.start()

    def ask(self, number: int) -> None:
        count = 0
        while not self.stop.is_set():
            text = f"{'abcdefgh'[number % 8]} {'abcdefgh'[count % 8]}"
            connection = http.client.HTTPConnection(self.place, timeout=60)
            try:
                connection.connect()
            except OSError:  # it listens no longer
                connection.close()
                return
            try:
                body = json.dumps({"text": text}).encode()
                connection.request("POST", "/v1/translate", body, {"Content-Type": "application/json"})
                answer = connection.getresponse()
                record = json.loads(answer.read())
                mine = answer.status == 200 and record["translations"][0]["source"] == text
                self.found.append(answer.status if mine or answer.status != 200 else "another's answer")
            except (OSError, http.client.HTTPException) as error:
                self.found.append(f"lost: {error!r}")
            finally:
                connection.close()
            count += 1

    def end(self) -> list[object]:
        self.stop.set()
        for thread in self.threads:
            thread.join(60)
        return self.found


@pytest.mark.slow
def test_a_signal_under_load_loses_nothing(folder: Path) -> None:
    with process(str(folder)) as (running, url):
        load = Load(url, 8)
        while len(load.found) < 20:
            time.sleep(0.05)
        running.send_signal(signal.SIGTERM)
        assert running.wait(30) == 0
        found = load.end()
    # Connections that the system had taken in, and nobody had answered yet, may be lost: no request was accepted there.
    lost = [one for one in found if one not in (200, 503)]
    assert all(re.search("reset|broken pipe|without response", str(one).lower()) for one in lost), lost
    assert len(lost) <= 8
    assert found.count(200) >= 20


def test_what_was_accepted_is_finished_and_new_requests_are_refused(folder: Path) -> None:
    with process(str(folder)) as (running, url), heedful.Client(url, patience=0) as client:
        long = ["Bead cafe deaf face! " * 60] * 8
        answers: list[object] = []
        asking = threading.Thread(target=lambda: answers.append(client.translate(long)))
        asking.start()
        place = urlsplit(url).netloc
        until = time.monotonic() + 20
        while "heedful_batches 0" in _get(place, "/metrics")[1]:
            assert time.monotonic() < until
        running.send_signal(signal.SIGTERM)
        while (status := _get(place, "/ready")[0]) == 200:
            assert time.monotonic() < until
        assert status == 503
        assert _get(place, "/health")[0] == 200
        with pytest.raises(heedful.HeedfulError, match="stopping"):
            client.translate("a")
        asking.join(60)
        assert running.wait(30) == 0
        (items,) = answers
        assert [item["source"] for item in items] == long


@pytest.mark.slow
def test_there_is_a_bound(folder: Path) -> None:
    with process(str(folder), "--drain", "0.3") as (running, url), heedful.Client(url, patience=0) as client:
        failed: list[Exception] = []

        def ask() -> None:
            try:
                client.translate(["Bead cafe deaf face! " * 20] * 100)
            except heedful.HeedfulError as error:
                failed.append(error)

        asking = threading.Thread(target=ask)
        asking.start()
        until = time.monotonic() + 20
        while "heedful_batches 0" in _get(urlsplit(url).netloc, "/metrics")[1]:
            assert time.monotonic() < until
        running.send_signal(signal.SIGTERM)
        assert running.wait(30) == 0
        asking.join(20)
        assert "no time left" in str(failed[0])


@pytest.mark.slow
@pytest.mark.parametrize("path", ["align", "figure", "items"])
def test_nothing_else_is_left_hanging(path: str, folder: Path) -> None:
    """What waits for the thread that writes, or for another one, is told so, too; and the process ends."""
    code = "import sys, time, heedful.translator as t, heedful.serve.http.app as r, heedful.cli; "
    code += "slow = lambda *a, **k: time.sleep(60); "
    code += "r.item = slow" if path == "items" else "t.Translator.pairs = slow"
    code += "; heedful.cli.main()"
    body = {
        "items": ("/v1/translate", {"text": "a", "alignments": True}),
        "align": ("/v1/align", {"pairs": [{"source": "a", "target": "A"}]}),
        "figure": ("/v1/figure", {"text": "a", "target": "A"}),
    }[path]
    with process(str(folder), "--drain", "0.3", program=("-c", code)) as (running, url):
        place = urlsplit(url).netloc
        connection = http.client.HTTPConnection(place, timeout=30)
        connection.request("POST", body[0], json.dumps(body[1]).encode(), {"Content-Type": "application/json"})
        time.sleep(0.5)
        running.send_signal(signal.SIGTERM)
        answer = connection.getresponse()
        assert (answer.status, b"no time left" in answer.read()) == (503, True)
        connection.close()
        assert running.wait(45) == 0  # what hangs would take 60 s
        assert running.stderr is not None
        assert "Traceback" not in running.stderr.read()


def _get(place: str, path: str) -> tuple[int, str]:
    connection = http.client.HTTPConnection(place, timeout=20)
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        return answer.status, answer.read().decode()
    finally:
        connection.close()


def test_what_it_refuses(folder: Path, heedful_cli: Callable[..., Done]) -> None:
    for arguments, says in (
        ((folder, "/nothing/there"), "/nothing/there"),
        ((folder, folder), "two models are named 'small'"),
        ((folder, "--seconds", "nan"), "the limit seconds is nan"),
        ((folder, "--host", "no.such.host.invalid"), "cannot listen at no.such.host.invalid, port 0"),
    ):
        done = heedful_cli("serve", *arguments, "--threads", "1", "--port", "0")
        assert (done.code, done.out) == (2, "")
        assert says in done.err


def test_it_says_what_is_missing(folder: Path) -> None:
    code = "import sys; sys.modules['fastapi'] = None; sys.argv = ['heedful', 'serve', sys.argv[1]]; "
    code += "import heedful.cli; heedful.cli.main()"
    command = [sys.executable, "-c", code, str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, cwd=ROOT, check=False)
    assert done.returncode == 2
    assert "fastapi" in done.stderr
    assert "pip install '.[serve]'" in done.stderr


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is not here")
def test_the_unit_of_the_docs(tmp_path: Path) -> None:
    text = (ROOT / "docs/guide/deploy.md").read_text(encoding="utf-8")
    unit = text.partition("```ini\n")[2].partition("```")[0]
    assert "[Service]" in unit
    program = tmp_path / "heedful"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    file = tmp_path / "heedful.service"
    file.write_text(unit.replace("/opt/heedful/bin/heedful", str(program)))
    done = subprocess.run(["systemd-analyze", "verify", str(file)], capture_output=True, text=True, check=False)
    ours = [line for line in (done.stdout + done.stderr).splitlines() if "heedful" in line]
    assert (done.returncode, ours) == (0, [])

"""A log that cannot be written stops nothing; what was refused is in it at the end."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import pytest

pytest.importorskip("fastapi")
pytest.importorskip("uvicorn")
from conftest import ROOT
from random_translators import random_folder, random_translator
from running import running

from heedful.serve.http.server import LOG_BUFFER, LogStream, log_stream


def read(descriptor: int) -> str:
    found = b""
    while not found.endswith(b"end\n"):
        found += os.read(descriptor, 1 << 16)
    return found.decode()


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="there is no /dev/full")
def test_a_full_disk() -> None:
    with open("/dev/full", "wb", buffering=0) as full:
        stream = LogStream(full.fileno())
        for _ in range(3):
            print("a line", file=stream, flush=True)
        stream.end()
        assert stream._lost == 3
        print("after the end", file=stream, flush=True)


def test_a_pipe_that_nobody_reads_blocks_nobody() -> None:
    out, into = os.pipe()
    stream = LogStream(into)
    for number in range(3 * LOG_BUFFER // 1_000):  # more than the pipe and the stream keep
        stream.write(f"{number:0999}\n")
    assert stream._kept <= LOG_BUFFER
    found = b""
    while b"could not be written" not in found or b"more" not in found:
        stream.write("more\n")  # lost as long as the stream is full
        found += os.read(out, 1 << 16)
    assert [int(line) for line in found.split(b"\n") if line.isdigit()][:3] == [0, 1, 2]
    stream.write("end\n")
    stream.end()
    os.close(into)
    os.close(out)


def test_a_closed_pipe() -> None:
    out, into = os.pipe()
    os.close(out)
    stream = LogStream(into)
    print("a line", file=stream, flush=True)
    stream.end()
    os.close(into)
    assert stream._lost == 1


def test_lines_arrive_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    out, into = os.pipe()
    with os.fdopen(into, "w") as before:
        monkeypatch.setattr(sys, "stderr", before)
        with log_stream():
            assert sys.stderr is not before
            for number in range(100):
                print(number, file=sys.stderr, flush=True)
            print("end \ud800", file=sys.stderr)
            print("end", file=sys.stderr)
        assert sys.stderr is before
        assert read(out) == "".join(f"{number}\n" for number in range(100)) + "end \\ud800\nend\n"
    os.close(out)


def listens_at(pid: int) -> int | None:
    """Return the port at which a process listens, or None: it cannot say so where its output is lost."""
    sockets = set()
    for each in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(OSError):
            sockets.add(os.readlink(each))
    for line in Path(f"/proc/{pid}/net/tcp").read_text().splitlines()[1:]:
        _, local, _, state, *rest = line.split()
        if state == "0A" and f"socket:[{rest[5]}]" in sockets:
            return int(local.rpartition(":")[2], 16)
    return None


@pytest.mark.slow
@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="there is no /dev/full")
def test_the_service_goes_on_when_the_disk_of_its_log_is_full(tmp_path: Path) -> None:
    import socket

    folder = random_folder(tmp_path / "small", "transformer")
    command = [sys.executable, "-m", "heedful", "serve", str(folder), "--port", "0", "--threads", "1"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    with open("/dev/full", "wb") as full:
        process = subprocess.Popen(command, stderr=full, stdout=full, env=environment)
    try:
        port = None
        for _ in range(600):
            assert process.poll() is None
            if port := listens_at(process.pid):
                break
            time.sleep(0.1)
        assert port, "it did not start"
        url = f"http://127.0.0.1:{port}/health"
        with socket.create_connection(("127.0.0.1", port), 20) as peer:
            peer.sendall(b"this is logged\r\n\r\n")
            assert b"400" in peer.recv(4096)
        time.sleep(0.3)
        with urllib.request.urlopen(url, timeout=20) as found:
            assert found.status == 200
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0
    finally:
        process.kill()
        process.wait(10)


def test_a_request_cannot_steer_the_terminal() -> None:
    ours, theirs = os.pipe()
    stream = LogStream(theirs)
    stream.write("GET /\x1b]0;owned\x07 \u202e\n")
    stream.end()
    os.close(theirs)
    with os.fdopen(ours, encoding="utf-8") as written:
        assert written.read() == "GET /\\x1b]0;owned\\x07 \\u202e\n"


def test_refusals_since_the_last_line_are_logged_at_the_end(caplog: pytest.LogCaptureFixture) -> None:
    with running({"m": random_translator("rnn")}) as service:
        every = service.service.metrics.refusals
        for number in (2, 3):
            for _ in range(number):
                every.add("host")
            until = time.monotonic() + 5
            while number == 2 and not caplog.records and time.monotonic() < until:
                time.sleep(0.02)  # until the service has logged the first two
    told = [record.getMessage() for record in caplog.records if "refused" in record.getMessage()]
    assert [message.split()[1] for message in told] == ["2", "3"]

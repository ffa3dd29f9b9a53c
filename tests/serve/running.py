"""A service on a port of its own: in a thread of this process, or as a process."""

from __future__ import annotations

import http.client
import json
import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

from conftest import ROOT
from random_translators import random_translator

import heedful
from heedful.client import Client
from heedful.serve.engine.worker_client import WorkerClient
from heedful.serve.http.app import build
from heedful.serve.http.models import ModelRegistry
from heedful.serve.http.server import Server, bind, url_of, uvicorn_config
from heedful.serve.http.service import TranslationService
from heedful.serve.limits import Limits
from heedful.translator import Translator


class Running:
    """A service in a thread."""

    def __init__(self, service: TranslationService, server: Server, url: str, token: str) -> None:
        self.service, self.server, self.url = service, server, url
        self.client = Client(url, token, timeout=20, patience=0)


@contextmanager
def running(
    models: dict[str, Translator],
    limits: Limits | None = None,
    token: str = "",
    folders: dict[str, str] | None = None,
    origins: Collection[str] = (),
) -> Iterator[Running]:
    """Serve models from a thread for as long as the block lasts; those of `folders` are written by a process."""
    registry = ModelRegistry(models)
    registry.folders = folders or {}
    service = TranslationService(registry, limits or Limits(), threads=1, processes=2)
    given = bind("127.0.0.1", 0)
    app = build(service, token, {"127.0.0.1", "localhost"}, origins)
    up = threading.Event()
    server = Server(uvicorn_config(app, service), service, up.set)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [given]}, daemon=True)
    thread.start()
    assert up.wait(30), "the service did not start"
    found = Running(service, server, url_of(given), token)
    try:
        yield found
    finally:
        found.client.close()
        server.should_exit = True
        thread.join(20)
        given.close()
        assert not thread.is_alive(), "the service did not end"


@contextmanager
def process(
    *arguments: str, program: tuple[str, ...] = ("-m", "heedful"), **environment: str
) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """Run `heedful serve` as a process; give it and its address when it is ready."""
    command = [sys.executable, *program, "serve", *arguments, "--port", "0", "--threads", "1"]
    there = {**os.environ, "PYTHONPATH": str(ROOT), **environment}
    running = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=there, cwd=Path("/"))
    assert running.stderr is not None
    said: list[str] = []
    try:
        until = time.monotonic() + 60
        while not (found := re.search(r"at (http://\S+) \(", "".join(said))):
            line = running.stderr.readline()
            said.append(line)
            assert line, f"it ended: {''.join(said)}"
            assert time.monotonic() < until, "it did not start"
        yield running, found[1]
    finally:
        running.kill()
        running.wait(10)
        running.stderr.close()


@contextmanager
def with_worker(folder: Path, limits: Limits | None = None) -> Iterator[tuple[Running, WorkerClient]]:
    """Serve a model with a worker process that is ready."""
    with running({"m": heedful.load(folder, "cpu")}, limits, folders={"m": str(folder)}) as service:
        until(lambda: service.service.engine.worker_ready, 60)
        assert service.service.engine.worker is not None
        yield service, service.service.engine.worker


def slow(name: str = "transformer", seconds: float = 0.005) -> Translator:
    """Return a translator whose steps take some time, however many sentences are in them."""
    translator = random_translator(name)
    model = translator.parts.model
    step = model.step

    def slowly(*arguments: object, **named: object) -> object:
        time.sleep(seconds)
        return step(*arguments, **named)

    model.step = slowly  # type: ignore[method-assign]
    return translator


def until(holds: Callable[[], bool], seconds: float = 20) -> None:
    """Wait until something holds."""
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.01)


def children(pid: int) -> list[int]:
    """Return the child processes of a process."""
    listed = subprocess.run(["pgrep", "-P", str(pid)], capture_output=True, text=True, check=False).stdout
    return [int(line) for line in listed.split()]


def post(url: str, path: str, body: object, timeout: float = 60) -> tuple[int, bytes]:
    """Ask a service; return the status and the body."""
    line = http.client.HTTPConnection(urlsplit(url).netloc, timeout=timeout)
    try:
        line.request("POST", path, json.dumps(body), {"Content-Type": "application/json"})
        answer = line.getresponse()
        return answer.status, answer.read()
    finally:
        line.close()


def get(url: str, path: str, timeout: float = 60) -> tuple[int, bytes]:
    """Get something from a service."""
    line = http.client.HTTPConnection(urlsplit(url).netloc, timeout=timeout)
    try:
        line.request("GET", path)
        answer = line.getresponse()
        return answer.status, answer.read()
    finally:
        line.close()

"""heedful behind the nginx of docs/guide/nginx.conf.

Without nginx these tests are skipped; with HEEDFUL_NGINX=1 in the environment they fail instead.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

pytest.importorskip("fastapi")
pytest.importorskip("uvicorn")
from conftest import ROOT
from random_translators import random_translator
from running import Running, running, until

from heedful.client import Client
from heedful.serve.limits import Limits

MAIN = """
daemon off;
master_process off;
pid {folder}/pid;
error_log stderr crit;
events {{ worker_connections 256; }}
http {{
    access_log off;
    client_body_temp_path {folder}/body;
    proxy_temp_path {folder}/proxy;
    fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi;
    scgi_temp_path {folder}/scgi;
    include {folder}/heedful.conf;
}}
"""


def program() -> str:
    path = shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin:/usr/local/sbin")
    if path is None:
        if os.environ.get("HEEDFUL_NGINX") == "1":
            pytest.fail("HEEDFUL_NGINX=1, but there is no nginx on this machine")
        pytest.skip("there is no nginx on this machine, so that docs/guide/nginx.conf is not tried")
    return path


@contextmanager
def proxied(folder: Path, *changes: tuple[str, str]) -> Iterator[tuple[Running, str, int]]:
    """A service and nginx before it: the service, the host and the port of nginx."""
    path = program()
    with (
        running({"m": random_translator("rnn")}, Limits(connections_per_address=0)) as service,
        socket.socket() as free,
    ):
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
        free.close()
        text = (ROOT / "docs/guide/nginx.conf").read_text(encoding="utf-8")
        place = urlsplit(service.url)
        for before, after in (("127.0.0.1:8000", place.netloc), ("listen 80;", f"listen 127.0.0.1:{port};"), *changes):
            assert before in text
            text = text.replace(before, after)
        (folder / "heedful.conf").write_text(text, encoding="utf-8")
        (folder / "nginx.conf").write_text(MAIN.format(folder=folder), encoding="utf-8")
        nginx = subprocess.Popen([path, "-p", str(folder), "-c", str(folder / "nginx.conf")])
        try:
            until(lambda: nginx.poll() is not None or reachable(port))
            assert nginx.poll() is None, "nginx did not start"
            yield service, "127.0.0.1", port
        finally:
            nginx.terminate()
            nginx.wait(20)


def reachable(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), 5).close()
    except OSError:
        return False
    return True


def statuses(place: tuple[str, int], data: bytes) -> list[int]:
    """Send bytes; return the statuses of what is answered until the connection is closed."""
    with socket.create_connection(place, 20) as peer:
        found = b""
        try:
            peer.sendall(data)
            while more := peer.recv(1 << 16):
                found += more
        except ConnectionError:
            pass
    return [int(code) for code in re.findall(rb"HTTP/1.1 (\d+)", found)]


def head(path: str, *fields: str, method: str = "GET") -> bytes:
    return "\r\n".join([f"{method} {path} HTTP/1.1", "Host: localhost", *fields, "", ""]).encode()


def test_nginx_passes_on_what_is_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with proxied(tmp_path) as (service, host, port), Client(f"http://{host}:{port}", patience=0) as client:
        assert client.translate("a b") == service.client.translate("a b")
        # Events come while the rest of the stream is still to be written.
        go, finish = asyncio.Event(), service.service.translate

        async def held(*arguments: Any) -> Any:
            while not go.is_set():
                await asyncio.sleep(0.01)
            return await finish(*arguments)

        monkeypatch.setattr(service.service, "translate", held)
        events = client.stream("a b")
        assert next(events)[0] == "start"
        go.set()
        assert [name for name, _ in events][-1] == "done"
        place = (host, port)
        assert statuses(place, head("/" + "a" * 40_000)) == [414]
        assert statuses(place, head("/", "X: " + "a" * 40_000)) == [400]
        json_ = ("Content-Type: application/json", "Connection: close")
        assert statuses(place, head("/v1/translate", *json_, "Content-Length: 3000000", method="POST")) == [413]
        assert statuses(place, head("/v1/models", "Connection: close", method="POST")) == [405]


def test_nginx_keeps_slow_clients_from_the_service(tmp_path: Path) -> None:
    changes = (("client_header_timeout 10s", "client_header_timeout 1s"),)
    with proxied(tmp_path, *changes) as (service, host, port):
        until(lambda: not service.service.connections.open)
        fields = ("Content-Type: application/json", "Content-Length: 15")
        with socket.create_connection((host, port), 20) as slow:
            body = json.dumps({"text": "a b"}).encode()
            slow.sendall(head("/v1/translate", *fields, method="POST") + body[:7])
            assert statuses((host, port), head("/")[:20]) == []  # nginx resets it
            assert not service.service.connections.open
            slow.sendall(body[7:])
            assert slow.recv(12) == b"HTTP/1.1 200"


def test_nginx_limits_the_requests_of_a_client(tmp_path: Path) -> None:
    changes = (("rate=20r/s", "rate=1r/m"), ("burst=40", "burst=5"))
    with proxied(tmp_path, *changes) as (_, host, port):
        asked = [statuses((host, port), head("/health", "Connection: close")) for _ in range(8)]
        assert asked == [[200]] * 6 + [[429]] * 2

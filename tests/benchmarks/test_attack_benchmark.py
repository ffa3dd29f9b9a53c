"""benchmarks/attack.py with few requests: it reports what holds and what does not."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import ModuleType

import pytest
from conftest import ROOT
from small_runs import benchmark

if not sys.platform.startswith("linux"):
    pytest.skip("the benchmark reads /proc", allow_module_level=True)

# Takes what `heedful serve` takes, and answers as quickly as Python can, until it is asked in a way it does not expect.
STUB = """
import json, sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
mode, *arguments = sys.argv[1:]
kept = []
class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        self.answer(200, b"heedful_writing_process 1")
    def do_POST(self):
        text = json.loads(self.rfile.read(int(self.headers["Content-Length"]))).get("text")
        if "one" not in str(text):
            if mode == "large" and len(kept) < 4:
                kept.append(b"x" * 80_000_000)
            if mode == "wrong":
                Handler.said = "nothing"
        said = Handler.said or str(text).upper()
        self.answer(200, json.dumps({"translations": [{"source": text, "text": said}]}).encode())
    said = ""
    def answer(self, status, body):
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
    def log_message(self, *_):
        pass
port = int(arguments[arguments.index("--port") + 1])
ThreadingHTTPServer(("127.0.0.1", port), Handler).serve_forever()
"""


@pytest.fixture(scope="module")
def attack() -> ModuleType:
    return benchmark("attack")


def lab(attack: ModuleType, folder: Path, mode: str):
    (folder / "stub.py").write_text(STUB, encoding="utf-8")
    made = attack.Lab(folder, ROOT, 1, 1.0, folder)
    made.program = (str(folder / "stub.py"), mode)
    made.texts = ["one", "one two", "one two three"]
    return made


@pytest.mark.slow
@pytest.mark.parametrize(
    ("mode", "name", "broken"),
    [
        ("good", "markup-texts", []),
        ("large", "markup-texts", ["memory"]),
        ("wrong", "markup-texts", ["wrong answers"]),
        ("good", "idle", ["connections of 200 were closed"]),
    ],
)
def test_an_attack_on_a_service(attack: ModuleType, tmp_path: Path, mode: str, name: str, broken: list[str]) -> None:
    made = lab(attack, tmp_path, mode)
    kind = attack.Kind(expect=attack.ON_SERVICE[name].expect)
    try:
        row = made.attack(name, kind)
    finally:
        made.end()
    seen = [x for x in row.broken if x != "latency"]  # that is up to the machine, here
    assert all(any(part in x for x in seen) for part in broken), row
    assert bool(seen) == bool(broken), row
    assert row.attack_p95 > 0


def test_a_table_and_the_exit_code(attack: ModuleType, tmp_path: Path, monkeypatch, capsys) -> None:
    rows = [attack.Row("a", "x", rest_mib=100, peak_mib=150, dummy_p95=0.1, attack_p95=0.25), attack.Row("b", "y")]
    monkeypatch.setattr(attack, "run", lambda wanted, options: rows)
    assert attack.main(["png", "--json", str(tmp_path / "x.json")]) == 0
    assert "| a | 100 | +50 | 100 | 250 | 2.5 |" in capsys.readouterr().out
    rows[1].broken.append("memory")
    assert attack.main(["png"]) == 1
    assert "BROKEN: memory" in capsys.readouterr().out
    assert [row["attack"] for row in json.loads((tmp_path / "x.json").read_text())] == ["a", "b"]


def test_bounds(attack: ModuleType) -> None:
    def judged(latency: float, peak: float, kind=attack.Kind(), **more) -> list[str]:  # noqa: B008
        row = attack.Row("a", "", rest_mib=100.0)
        busy = attack.Phase(latencies=[0.1] * 40)
        phase = attack.Phase(latencies=[latency] * 40, peak=peak, report={"200": 3}, **more)
        attack.judge(row, [phase], [busy], kind, None)
        return row.broken

    assert judged(0.29, 299.0) == []
    assert judged(0.31, 299.0) == ["latency"]
    assert judged(0.29, 301.0) == ["memory"]
    assert judged(0.1, 100.0, lost=["gone"]) == ["1 polite requests lost"]
    assert judged(0.1, 100.0, wrong=["other"]) == ["1 wrong answers"]


def test_a_name_that_is_none(attack: ModuleType, capsys) -> None:
    with pytest.raises(SystemExit) as ended:
        attack.main(["pgn"])
    assert ended.value.code == 2
    assert "'pgn'" in capsys.readouterr().err


def test_every_attack_is_described(attack: ModuleType, capsys) -> None:
    assert attack.main(["list"]) == 0
    said = capsys.readouterr().out
    for name in (*attack.ON_SERVICE, *attack.SINGLE):
        assert f"  {name} " in said
    assert set(attack.ON_SERVICE) <= set(attack.attack_requests.ATTACKS)


def test_a_hostile_server(attack: ModuleType) -> None:
    client = sys.modules["attack_client"]
    server = client.Server(client.ANSWERS["client-no-lines"])
    server.start()
    import urllib.request

    with urllib.request.urlopen(server.url, b"{}") as answer:
        assert json.loads(answer.read()) == {"model": "m", "translations": []}
    server.listening.close()


def test_commands_are_bounded(attack: ModuleType) -> None:
    commands = sys.modules["attack_commands"]
    ended = commands.Ended(1, b"", "Traceback (most recent call last)\n\x1b[31m", 10.0, 1.0)
    assert ended.faults() == ["a traceback", "a raw escape sequence on stderr"]
    assert commands.Ended(None, b"", "", 10.0, 1.0).faults()
    assert commands.Ended(2, b"", "config.json: no", 10.0, 1.0).faults() == []

"""A service as a process, and clients that load it: what `serving` measures with."""

from __future__ import annotations

import http.client
import json
import os
import random
import re
import subprocess
import sys
import threading
import time
import urllib.request
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from urllib.parse import urlsplit

FLOOD = 300  # connections of an overload


def cpu(process: int) -> float:
    """Return how many seconds of CPU time a process has had."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


class Service:
    """`heedful serve` as a process."""

    def __init__(self, model: str, threads: int, *more: str) -> None:
        command = [sys.executable, "-m", "heedful", "serve", model, "--port", "0", "--threads", str(threads), *more]
        self.begun = time.perf_counter()
        self.process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        assert self.process.stderr is not None
        line = ""
        while not (found := re.search(r"at (http://\S+) \((.*)\)", line)):
            line = self.process.stderr.readline()
            if not line:
                raise SystemExit("the service did not start")
        self.started = time.perf_counter() - self.begun
        self.place, self.said = urlsplit(found[1]).netloc, found[2]

    def all_there(self) -> float:
        """Wait until its other process is there, if there is to be one; return how long that took from the start."""
        while b"heedful_writing_process 0" in urllib.request.urlopen(f"http://{self.place}/metrics").read():
            time.sleep(0.05)
            if time.perf_counter() - self.begun > 60:
                raise SystemExit("the process that writes did not start")
        return time.perf_counter() - self.begun

    def processes(self) -> list[int]:
        """Return its processes."""
        task = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children")
        return [self.process.pid, *map(int, task.read_text().split())]

    def memory(self) -> float:
        """Return the memory of its processes in MiB; what they share counts once (PSS)."""
        rolls = [Path(f"/proc/{number}/smaps_rollup").read_text() for number in self.processes()]
        return sum(int(size) for roll in rolls for size in re.findall(r"^Pss:\s+(\d+) kB", roll, re.M)) / 1024

    def cpu(self) -> float:
        """Return how many seconds of CPU time it has had."""
        return sum(map(cpu, self.processes()))

    def end(self) -> int:
        """Stop it, and return how it ended."""
        self.process.terminate()
        return self.process.wait(60)


class Caller:
    """One client with one connection."""

    def __init__(self, place: str) -> None:
        self.connection = http.client.HTTPConnection(place, timeout=120)

    def ask(self, text: str, beam: int = 1) -> tuple[int, float]:
        """Ask for a translation; return status and seconds. An answer to another question is an error."""
        begun = time.perf_counter()
        body = json.dumps({"text": text, "beam": beam}).encode()
        self.connection.request("POST", "/v1/translate", body, {"Content-Type": "application/json"})
        answer = self.connection.getresponse()
        content = answer.read()
        took = time.perf_counter() - begun
        if answer.status == 200 and json.loads(content)["translations"][0]["source"] != text:
            raise SystemExit(f"an answer to another question: {text!r} got {content[:200]!r}")
        if answer.status in (429, 503) and not answer.headers["Retry-After"]:
            raise SystemExit("a refusal without Retry-After")
        return answer.status, took


def closed(place: str, texts: list[str], clients: int, seconds: float, beam: int = 1) -> tuple[float, list[float]]:
    """Let clients ask without pause; return sentences a second, and how long each answer took."""
    took: list[float] = []
    until = time.perf_counter() + seconds

    def client(number: int) -> None:
        caller, at = Caller(place), 37 * number
        while time.perf_counter() < until:
            status, one = caller.ask(texts[at % len(texts)], beam)
            assert status == 200, status
            took.append(one)
            at += 1
        caller.connection.close()

    begun = time.perf_counter()
    _all(clients, client)
    return len(took) / (time.perf_counter() - begun), took


def opened(place: str, texts: list[str], rate: float, seconds: float, workers: int) -> list[tuple[int, float]]:
    """Ask at random times, `rate` a second; return which text each request was for, and how long its answer took.

    Time counts from when a request was due, also where all callers were busy.
    """
    pick = random.Random(1)
    due, when = [], 0.0
    while when < seconds:
        when += pick.expovariate(rate)
        due.append(when)
    took: list[tuple[int, float]] = []
    lock, numbers = threading.Lock(), iter(range(len(due)))
    begun = time.perf_counter()

    def worker(_worker: int) -> None:
        caller = Caller(place)
        while True:
            with lock:
                number, which = next(numbers, None), pick.randrange(len(texts))
            if number is None:
                caller.connection.close()
                return
            time.sleep(max(0.0, due[number] - (time.perf_counter() - begun)))
            status, _ = caller.ask(texts[which])
            if status != 200:
                raise RuntimeError(f"status {status}")
            took.append((which, time.perf_counter() - begun - due[number]))

    _all(workers, worker)
    return took


def flood(
    service: Service, texts: list[str], rate: float, seconds: float, beam: int
) -> tuple[Counter[int], list[float], float]:
    """Ask at random times, `rate` a second, whatever becomes of it; return statuses, the memory, the true rate."""
    statuses: Counter[int] = Counter()
    memory = [service.memory()]
    pick, due, when = random.Random(2), [], 0.0
    while when < seconds:
        when += pick.expovariate(rate)
        due.append(when)
    lock, numbers, begun = threading.Lock(), iter(range(len(due))), time.perf_counter()

    def client(_: int) -> None:
        caller = Caller(service.place)
        while True:
            with lock:
                number = next(numbers, None)
            if number is None:
                return
            time.sleep(max(0.0, due[number] - (time.perf_counter() - begun)))
            status = caller.ask(texts[number % len(texts)], beam)[0]
            with lock:
                statuses[status] += 1

    def watch(_: int) -> None:
        while time.perf_counter() - begun < seconds:
            time.sleep(1)
            memory.append(service.memory())

    _all(FLOOD + 1, lambda number: client(number) if number < FLOOD else watch(number))
    return statuses, memory, len(due) / (time.perf_counter() - begun)


def _all(count: int, call: Callable[[int], None]) -> None:
    """Run threads; an error in one of them ends the run."""
    failed: list[BaseException] = []

    def run(number: int) -> None:
        try:
            call(number)
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=run, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failed:
        raise SystemExit(f"{len(failed)} clients failed, the first with {failed[0]!r}")

"""A service as a process that is measured from outside, a polite client, and a process that is only busy.

`attack.py` uses them. Everything here talks to loopback addresses, to servers that it started itself. The attacker
comes from 127.0.0.1, the polite client from 127.0.0.2, so that limits per address keep them apart.

python benchmarks/attack_service.py polite PORT SECONDS LEAD FILE    the polite client; prints JSON
python benchmarks/attack_service.py busy SHARE SECONDS               burns so many cores; prints nothing
"""

from __future__ import annotations

import asyncio
import http.client
import json
import os
import random
import re
import resource
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
HERE = Path(__file__).resolve().parent
MEMORY = 200.0  # MiB over the resting size that an attack may cost
SLOWER = 3.0  # times the p95 with a busy dummy process
KEPT = 80.0  # MiB over the resting size that still count as normal: the heap of a process that has just worked
RECOVERY = 5.0  # seconds until everything is back to normal
GIVE_UP = 1200.0  # MiB over the resting size: the attack is stopped before it harms this machine
TIMEOUT = 15.0  # seconds that the polite client waits; then its request is lost
POLITE = "127.0.0.2"
TEXTS = 40
RATE = 8.0  # polite requests a second
# What the command of each process of the service has in it.
DECODER, PNG = "heedful.serve.engine.worker", "heedful.serve.engine.drawing"


# ------------------------------------------------------------------------------------------------ processes


def family(pid: int) -> list[int]:
    """Return a process and all its descendants."""
    found = [pid]
    for one in found:
        try:
            tasks = list(Path(f"/proc/{one}/task").iterdir())
            found += [int(x) for task in tasks for x in (task / "children").read_text().split()]
        except OSError:
            continue
    return found


def pss(pids: Sequence[int]) -> float:
    """Return the memory of processes in MiB; what they share counts once."""
    total = 0
    for pid in pids:
        try:
            match = re.search(r"^Pss:\s+(\d+) kB", Path(f"/proc/{pid}/smaps_rollup").read_text(), re.M)
        except OSError:
            continue
        total += int(match[1]) if match else 0
    return total / 1024


def descriptors(pids: Sequence[int]) -> int:
    """Return how many files and sockets processes have open."""
    count = 0
    for pid in pids:
        try:
            count += len(os.listdir(f"/proc/{pid}/fd"))
        except OSError:
            continue
    return count


def threads(pids: Sequence[int]) -> int:
    """Return how many threads processes have."""
    count = 0
    for pid in pids:
        try:
            count += len(os.listdir(f"/proc/{pid}/task"))
        except OSError:
            continue
    return count


def command_of(pid: int) -> str:
    """Return the command line of a process."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode("utf-8", "replace")
    except OSError:
        return ""


def children_with(pid: int, word: str) -> list[int]:
    """Return the descendants of a process whose command has this word."""
    return [one for one in family(pid)[1:] if word in command_of(one)]


def bounded(memory: int = 2 << 30) -> None:
    """Bound the memory of this process, and end it with its parent."""
    resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
    end_with_parent()


def end_with_parent() -> None:
    """Ask Linux to end this process when its parent ends."""
    import ctypes

    ctypes.CDLL(None).prctl(1, signal.SIGKILL)


# ------------------------------------------------------------------------------------------------ the model


def model_folder(cache: Path | None = None) -> Path:
    """Train a small Transformer on the embedded corpus, once; return its folder."""
    folder = (cache or Path(tempfile.gettempdir()) / f"heedful-attack-{os.getuid()}") / "model"
    if (folder / "config.json").is_file():
        return folder
    from serving import make_model

    folder.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    part = folder.with_name(f"model.{os.getpid()}")
    make_model(part)
    shutil.rmtree(part / "checkpoints", ignore_errors=True)
    if not (folder / "config.json").is_file():
        part.rename(folder)
    return folder


def sentences(count: int, low: int = 6, high: int = 12, seed: int = 1) -> list[str]:
    """Return Hindi sentences of the embedded corpus, all different."""
    from heedful.data.hindi import generate

    found = dict.fromkeys(islice((e.seen_from("hi-en").source for e in generate(seed, "train", low, high)), 2 * count))
    return list(islice(found, count))


# ------------------------------------------------------------------------------------------------ the service


class Service:
    """`heedful serve` as a process of its own."""

    def __init__(
        self,
        models: Sequence[str | Path],
        options: Sequence[str] = (),
        *,
        code: Path = ROOT,
        files: int = 0,
        log: Path | None = None,
        program: Sequence[str] = ("-m", "heedful"),
    ) -> None:
        """Start it: `files` limits its descriptors, `log` is where its stderr goes, `code` is the checkout."""
        with socket.socket() as free:  # stderr may be a full disk: the port has to be known beforehand
            free.bind(("127.0.0.1", 0))
            self.port = int(free.getsockname()[1])
        self.options = tuple(options)
        command: list[str | bytes] = [sys.executable, *program, "serve", *map(os.fsencode, models)]
        command += ["--port", str(self.port), "--threads", "1", *options]

        def prepare() -> None:
            end_with_parent()
            if files:
                resource.setrlimit(resource.RLIMIT_NOFILE, (files, files))

        environment = {**os.environ, "PYTHONPATH": str(code), "OMP_NUM_THREADS": "1", "HEEDFUL_TOKEN": ""}
        self.log = Path(tempfile.mkstemp(prefix="heedful-attack-", suffix=".log")[1]) if log is None else log
        with open(self.log, "wb") as stderr:
            self.process = subprocess.Popen(
                command, stdout=stderr, stderr=stderr, env=environment, cwd="/", preexec_fn=prepare
            )

    def wait(self, seconds: float = 60) -> None:
        """Wait until it is ready, with its decoding process."""
        until = time.monotonic() + seconds
        while True:
            if self.process.poll() is not None:
                raise RuntimeError(f"the service ended with {self.process.returncode}: {self.said()[-2000:]}")
            try:
                if self.get("/ready")[0] == 200 and b"heedful_writing_process 0" not in self.get("/metrics")[1]:
                    return
            except OSError:
                pass
            if time.monotonic() > until:
                raise RuntimeError(f"the service was not ready within {seconds:.0f} s: {self.said()[-2000:]}")
            time.sleep(0.1)

    def said(self) -> str:
        """Return what it logged."""
        return self.log.read_text(encoding="utf-8", errors="replace") if self.log.is_file() else ""

    def get(self, path: str, timeout: float = 5) -> tuple[int, bytes]:
        """Get a path; return status and content."""
        return self.ask(path, None, timeout)

    def ask(self, path: str, body: object, timeout: float = 30, host: str = "") -> tuple[int, bytes]:
        """Post a body as JSON, or get a path without one; return status and content."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout, source_address=(POLITE, 0))
        headers = {"Content-Type": "application/json", **({"Host": host} if host else {})}
        try:
            content = None if body is None else json.dumps(body).encode()
            connection.request("GET" if body is None else "POST", path, content, headers)
            answer = connection.getresponse()
            return answer.status, answer.read(64 << 20)
        except http.client.HTTPException as error:
            raise OSError(f"{type(error).__name__}: {error}") from None
        finally:
            connection.close()

    def pids(self) -> list[int]:
        """Return its processes."""
        return family(self.process.pid)

    def memory(self) -> float:
        """Return the memory of all its processes in MiB."""
        return pss(self.pids())

    def alive(self) -> bool:
        """Whether its first process is there."""
        return self.process.poll() is None

    def end(self, seconds: float = 10) -> int | None:
        """Stop it; return how it ended, or None if it had to be killed."""
        pids = self.pids() if self.alive() else []
        if self.alive():
            self.process.terminate()
        try:
            code: int | None = self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            code = None
            self.process.kill()
            self.process.wait(10)
        for pid in pids[1:]:
            if "heedful" in command_of(pid):
                try:
                    os.kill(pid, signal.SIGKILL)
                except OSError:
                    continue
        if self.log.name.startswith("heedful-attack-"):
            self.log.unlink(missing_ok=True)
        return code


@dataclass
class Rest:
    """A service at rest: what its normal is."""

    memory: float
    descriptors: int
    threads: int
    decoders: int
    latency: float  # median of a polite request


def warm(service: Service, texts: Sequence[str], texts_file: Path) -> Rest:
    """Use every route once or twice, note the right answers of the polite texts, and return what rest is like."""
    for _ in range(2):
        answers = {}
        for text in texts:
            status, content = service.ask("/v1/translate", {"text": text})
            if status != 200:
                raise RuntimeError(f"the service at rest answers {status}: {content[:300]!r}")
            answers[text] = json.loads(content)["translations"][0]["text"]
    texts_file.write_text(json.dumps(answers), encoding="utf-8")
    long = " ".join(texts[:20])
    for path, body in (
        ("/v1/figure", {"text": texts[0], "format": "png"}),
        ("/v1/figure", {"text": long[:400], "format": "svg"}),
        ("/v1/align", {"pairs": [{"source": t, "target": answers[t] or "a"} for t in texts[:16]]}),
        ("/v1/translate", {"text": [long] * 4, "alignments": True}),
        ("/v1/translate", {"text": f"<b>{texts[0]}</b>", "markup": True, "beam": 4, "n_best": 4}),
    ):
        service.ask(path, body)
    took = []
    for text in texts[:10]:
        begun = time.perf_counter()
        service.ask("/v1/translate", {"text": text})
        took.append(time.perf_counter() - begun)
    time.sleep(0.5)
    pids = service.pids()
    decoders = len(children_with(pids[0], DECODER))
    return Rest(service.memory(), descriptors(pids), threads(pids), decoders, statistics.median(took))


# ------------------------------------------------------------------------------------------------ one phase


@dataclass
class Phase:
    """What one phase showed: latencies of the polite client, its losses, the service's peak, the attacker's report."""

    latencies: list[float] = field(default_factory=list)
    health: list[float] = field(default_factory=list)
    lost: list[str] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    refused: int = 0
    peak: float = 0.0
    share: float = 0.0  # cores that the attacker was busy on
    gave_up: bool = False
    report: dict[str, Any] = field(default_factory=dict)


def phase(
    service: Service,
    texts_file: Path,
    seconds: float,
    other: Sequence[str],
    rest: Rest,
    lead: float = 0.3,
) -> Phase:
    """Let the polite client ask for some seconds while another process runs, `lead` seconds ahead of it.

    The service's memory is watched all the time.
    """
    result = Phase()
    polite = subprocess.Popen(
        [sys.executable, __file__, "polite", str(service.port), str(seconds), str(lead), str(texts_file)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        preexec_fn=bounded,
    )
    begun = time.monotonic()
    attacker = subprocess.Popen(
        [sys.executable, *other], stdout=subprocess.PIPE, stderr=subprocess.PIPE, preexec_fn=bounded
    )
    outputs: dict[int, tuple[bytes, bytes]] = {}

    def wait_for(process: subprocess.Popen[bytes]) -> None:
        outputs[process.pid] = process.communicate()

    waits = [threading.Thread(target=wait_for, args=(p,), daemon=True) for p in (polite, attacker)]
    for wait in waits:
        wait.start()
    attacker_cpu = 0.0
    limit = begun + lead + seconds + TIMEOUT + 10
    while any(wait.is_alive() for wait in waits):
        memory = service.memory()
        result.peak = max(result.peak, memory)
        attacker_cpu = max(attacker_cpu, sum(cpu_of(pid) for pid in family(attacker.pid)))
        late = time.monotonic() > begun + lead + seconds + 4
        if memory > rest.memory + GIVE_UP and attacker.poll() is None:
            result.gave_up = True
            attacker.kill()
        if late and attacker.poll() is None:
            attacker.kill()
        if time.monotonic() > limit:
            polite.kill()
            attacker.kill()
        time.sleep(0.15)
    result.share = attacker_cpu / (lead + seconds)
    told, complaint = outputs.get(polite.pid, (b"", b""))
    if polite.returncode or not told:
        result.lost.append(f"the polite client failed: {complaint[-500:].decode('utf-8', 'replace')}")
    else:
        for name, value in json.loads(told).items():
            setattr(result, name, value)
    told, complaint = outputs.get(attacker.pid, (b"", b""))
    if told.strip():
        result.report = json.loads(told)
    elif attacker.returncode not in (0, -signal.SIGKILL):
        result.report = {"attacker failed": complaint[-700:].decode("utf-8", "replace")}
    return result


def cpu_of(pid: int) -> float:
    """Return how many seconds of CPU time a process has had."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def recover(service: Service, rest: Rest, texts: Sequence[str]) -> tuple[float, str]:
    """Wait until everything is back to normal; return the seconds it took, and what is not, if anything."""
    begun = time.monotonic()
    why = "nothing was measured"
    while (waited := time.monotonic() - begun) < RECOVERY:
        if not service.alive():
            return waited, "the service has ended"
        why = _not_normal(service, rest, texts, RECOVERY + 0.5 - waited)
        if not why:
            return time.monotonic() - begun, ""
        time.sleep(0.2)
    return time.monotonic() - begun, why


def _not_normal(service: Service, rest: Rest, texts: Sequence[str], left: float) -> str:
    try:
        status, _ = service.get("/ready", left)
        if status != 200:
            return f"/ready answers {status}"
        begun = time.perf_counter()
        status, _ = service.ask("/v1/translate", {"text": texts[0]}, left)
        took = time.perf_counter() - begun
    except OSError as error:
        return f"no answer: {error}"
    if status != 200:
        return f"/v1/translate answers {status}"
    if took > SLOWER * max(rest.latency, 0.05):
        return f"a request takes {took:.2f} s"
    pids = service.pids()
    if len(children_with(pids[0], DECODER)) < rest.decoders:
        return "the decoding process is gone"
    if (open_now := descriptors(pids)) > rest.descriptors + 12:
        return f"{open_now} descriptors, {rest.descriptors} at rest"
    if (running := threads(pids)) > rest.threads + 12:
        return f"{running} threads, {rest.threads} at rest"
    if (memory := service.memory()) > rest.memory + KEPT:
        return f"{memory:.0f} MiB, {rest.memory:.0f} at rest"
    return ""


def p95(values: Sequence[float]) -> float:
    """Return the 95th percentile."""
    if len(values) < 2:
        return values[0] if values else 0.0
    return statistics.quantiles(values, n=20, method="inclusive")[18]


# ------------------------------------------------------------------------------------------------ polite and busy


async def http_once(
    port: int, method: str, path: str, body: bytes = b"", source: str = POLITE
) -> tuple[int, dict[str, str], bytes]:
    """Send one request on a connection of its own; return status, headers and content."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port, local_addr=(source, 0), limit=1 << 20)
    try:
        head = f"{method} {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nConnection: close\r\n"
        if body:
            head += f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n"
        writer.write(head.encode() + b"\r\n" + body)
        await writer.drain()
        raw = await reader.readuntil(b"\r\n\r\n")
        first, *lines = raw.decode("latin-1").split("\r\n")
        headers = {k.strip().lower(): v.strip() for k, _, v in (line.partition(":") for line in lines if line)}
        content = await reader.read(-1)
        return int(first.split()[1]), headers, content
    finally:
        writer.transport.abort()


async def _polite(port: int, seconds: float, lead: float, answers: dict[str, str]) -> dict[str, Any]:
    """Ask RATE times a second, whether or not answers have come; 429 and 503 are asked again as told."""
    result: dict[str, Any] = {"latencies": [], "health": [], "lost": [], "wrong": [], "refused": 0}
    pick = random.Random(1)

    async def translate(text: str) -> None:
        begun = time.perf_counter()
        why = f"no answer in {TIMEOUT:.0f} s"
        try:
            async with asyncio.timeout(TIMEOUT):
                while True:
                    try:
                        status, headers, content = await http_once(
                            port, "POST", "/v1/translate", json.dumps({"text": text}).encode()
                        )
                    except (OSError, asyncio.IncompleteReadError) as error:
                        why = f"{type(error).__name__}: {error}"
                        result["refused"] += 1
                        await asyncio.sleep(0.2)
                        continue
                    if status in (429, 503):
                        why = f"refused with {status}"
                        result["refused"] += 1
                        await asyncio.sleep(min(5.0, float(headers.get("retry-after", "0.5"))))
                        continue
                    break
            if status != 200:
                result["lost"].append(f"status {status}: {content[:200].decode('utf-8', 'replace')}")
            elif (said := json.loads(content)["translations"][0])["text"] != answers[text] or said["source"] != text:
                result["wrong"].append(f"{text!r} became {said['text']!r}, not {answers[text]!r}")
        except TimeoutError:
            result["lost"].append(why)
        result["latencies"].append(time.perf_counter() - begun)

    async def health() -> None:
        begun = time.perf_counter()
        try:
            async with asyncio.timeout(TIMEOUT):
                await http_once(port, "GET", "/health")
        except (TimeoutError, OSError, asyncio.IncompleteReadError):
            pass
        result["health"].append(time.perf_counter() - begun)

    async def every(pause: Callable[[], float], call: Callable[[], Any]) -> None:
        tasks = []
        await asyncio.sleep(lead)
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            tasks.append(asyncio.create_task(call()))
            await asyncio.sleep(pause())
        await asyncio.gather(*tasks)

    texts = list(answers)
    await asyncio.gather(
        every(lambda: pick.uniform(0.5, 1.5) / RATE, lambda: translate(pick.choice(texts))),
        every(lambda: 0.25, health),
    )
    return result


def busy(share: float, seconds: float) -> None:
    """Burn `share` of a core for some seconds (more than 1: with as many processes)."""
    if share > 1:
        child = os.fork()
        if child == 0:
            end_with_parent()
            busy(share - 1, seconds)
            os._exit(0)
        busy(1.0, seconds)
        os.waitpid(child, 0)
        return
    until = time.monotonic() + seconds
    while (now := time.monotonic()) < until:
        begun = time.process_time()
        while time.process_time() - begun < 0.02 * share:
            sum(range(500))
        time.sleep(max(0.0, now + 0.02 - time.monotonic()))


if __name__ == "__main__":
    if sys.argv[1] == "polite":
        given = json.loads(Path(sys.argv[5]).read_text(encoding="utf-8"))
        print(json.dumps(asyncio.run(_polite(int(sys.argv[2]), float(sys.argv[3]), float(sys.argv[4]), given))))
    else:
        busy(float(sys.argv[2]), float(sys.argv[3]))

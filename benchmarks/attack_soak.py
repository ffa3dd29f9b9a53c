"""A soak: half the load that the service can carry, with kills, clients that go away and hostile texts mixed in.

python benchmarks/attack.py soak --minutes 10

Every answer is compared with the answer that the service gave to the same text at rest. Nothing may be lost or mixed
up, memory and descriptors stay flat, and the latency of the last minute is that of the first, within the noise of the
minutes between.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import resource
import signal
import statistics
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import attack_service as tools
from attack_requests import CLOSE, Target, ask, post, sentences
from attack_service import DECODER, PNG, Service, children_with, end_with_parent, http_once, p95

PATIENCE = 30.0  # seconds until a request is lost
HALF = 0.5
MOST = 25.0  # requests a second at most, so that the clients are no load themselves
GROWTH = 50.0  # MiB that the highest 5 % of the second half may lie over those of the first
NOISE = 1.5  # times the slower of the first minute and the median minute


async def _request(port: int, text: str, answers: dict[str, str], result: dict[str, Any]) -> float:
    """Ask for a translation until there is an answer, as a client does; check it; return how long it took."""
    begun = time.perf_counter()
    why = ""
    try:
        async with asyncio.timeout(PATIENCE):
            while True:
                try:
                    body = json.dumps({"text": text}).encode()
                    status, headers, content = await http_once(port, "POST", "/v1/translate", body)
                except (OSError, asyncio.IncompleteReadError, ValueError, IndexError) as error:
                    why = f"{type(error).__name__}: {error}"
                    result["again"] += 1
                    await asyncio.sleep(0.2)
                    continue
                if status not in (429, 503):
                    break
                why = f"status {status}"
                result["again"] += 1
                await asyncio.sleep(min(5.0, float(headers.get("retry-after", "1"))))
        if status != 200:
            result["lost"].append(f"status {status}: {content[:200].decode('utf-8', 'replace')}")
        else:
            (said,) = json.loads(content)["translations"]
            if (said["source"], said["text"]) != (text, answers[text]):
                result["wrong"].append(f"{text!r} became {said['text']!r}, not {answers[text]!r}")
    except TimeoutError:
        result["lost"].append(f"no answer in {PATIENCE:.0f} s ({why})")
    return time.perf_counter() - begun


async def ask_all(port: int, seconds: float, rate: float, answers: dict[str, str]) -> dict[str, Any]:
    """Ask at random times; at rate 0, eight clients ask without pause."""
    result: dict[str, Any] = {"requests": [], "lost": [], "wrong": [], "again": 0}
    pick, texts, begun = random.Random(3), list(answers), time.monotonic()

    async def one() -> None:
        at = time.monotonic() - begun
        result["requests"].append((at, await _request(port, pick.choice(texts), answers, result)))

    async def closed() -> None:
        while time.monotonic() - begun < seconds:
            await one()

    if not rate:
        await asyncio.gather(*(closed() for _ in range(8)))
        return result
    tasks: set[asyncio.Task[None]] = set()
    while time.monotonic() - begun < seconds:
        task = asyncio.create_task(one())
        tasks.add(task)
        task.add_done_callback(tasks.discard)
        await asyncio.sleep(pick.expovariate(rate))
    await asyncio.gather(*tasks)
    return result


async def mischief(port: int, pid: int, seconds: float) -> dict[str, int]:
    """Cancel, kill, hang, and send hostile texts, at random times."""
    target = Target(port, pid, time.monotonic() + seconds)
    pick = target.pick
    hostile: list[bytes] = [
        post("/v1/translate", {"text": "👩\u200d" * 9999}, CLOSE),
        post("/v1/translate", {"text": "🇮" * 20_000}, CLOSE),
        post("/v1/translate", {"text": "<b>" * 6000, "markup": True}, CLOSE),
        post("/v1/translate", {"text": "\u202e\x1b[31m\0" * 100}, CLOSE),
        post("/v1/translate", b"[" * 100_000, CLOSE),
        post("/v1/translate", b'{"text": "\xff"}', CLOSE),
        post("/v1/translate", {"text": sentences(200), "beam": 16, "n_best": 16}, CLOSE),
        post("/v1/align", {"pairs": [{"source": sentences(20), "target": "the boy ate"}] * 64}, CLOSE),
        post("/v1/figure", {"text": sentences(60), "format": "png"}, CLOSE),
        b"GET /\0 HTTP/1.1\r\n\r\n",
    ]

    async def every(pause: float, name: str) -> None:
        while target.left > 0:
            await asyncio.sleep(min(target.left, pick.uniform(0.5, 1.5) * pause))
            if target.left > 10 or name in ("cancel", "hostile"):
                await happens[name]()

    async def cancel() -> None:
        stream = await target.connect()
        if stream is not None:
            request = post(
                f"/v1/{pick.choice(['translate', 'stream', 'figure'])}", {"text": sentences(pick.randint(1, 60))}
            )
            stream[1].write(request[: pick.choice([len(request), len(request), len(request) // 2])])
            await asyncio.sleep(0.3 * pick.random() ** 2)
            stream[1].transport.abort()
            target.counts["cancelled"] += 1

    async def send() -> None:
        await ask(target, pick.choice(hostile), 20)

    def signalled(word: str, number: signal.Signals, name: str) -> Any:  # noqa: ANN401
        async def send_signal() -> None:
            for child in children_with(pid, word):
                os.kill(child, number)
                target.counts[name] += 1

        return send_signal

    happens: dict[str, Any] = {
        "cancel": cancel,
        "hostile": send,
        "kill decoder": signalled(DECODER, signal.SIGKILL, "decoders killed"),
        "hang decoder": signalled(DECODER, signal.SIGSTOP, "decoders stopped"),
        "kill png": signalled(PNG, signal.SIGKILL, "PNG processes killed"),
    }
    pauses = {"cancel": 0.7, "hostile": 3.0, "kill decoder": 40.0, "hang decoder": 90.0, "kill png": 45.0}
    shorter = min(1.0, seconds / 300)  # so that a short soak has some of each
    pauses |= {name: max(3.0, pauses[name] * shorter) for name in ("kill decoder", "hang decoder", "kill png")}
    await asyncio.gather(*(every(pause, name) for name, pause in pauses.items()))
    return dict(target.counts)


def _asker(service: Service, seconds: float, rate: float, answers: Path) -> subprocess.Popen[bytes]:
    command = [sys.executable, __file__, "ask", str(service.port), str(seconds), str(rate), str(answers)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, preexec_fn=tools.bounded)


def run(model: Path, code: Path, folder: Path, minutes: float) -> tuple[str, list[str]]:
    """Soak; return what happened, and what is broken."""
    texts = tools.sentences(200, 3, 12)
    answers = folder / "soak.json"
    service = Service([model], code=code)
    try:
        service.wait()
        tools.warm(service, texts, answers)
        return _soak(service, answers, minutes * 60)
    finally:
        service.end()


def _soak(service: Service, answers: Path, seconds: float) -> tuple[str, list[str]]:
    told, _ = _asker(service, 5.0, 0, answers).communicate(timeout=60)
    capacity = len(json.loads(told)["requests"]) / 5.0
    rate = min(MOST, HALF * capacity)
    asker = _asker(service, seconds, rate, answers)
    command = [sys.executable, __file__, "mischief", str(service.port), str(service.process.pid), str(seconds)]
    other = subprocess.Popen(command, stdout=subprocess.PIPE, preexec_fn=tools.bounded)
    samples: list[tuple[float, int, int]] = []
    begun = time.monotonic()
    reported = 0.0
    while time.monotonic() - begun < seconds and service.alive():
        pids = service.pids()
        samples.append((tools.pss(pids), tools.descriptors(pids), tools.threads(pids)))
        if time.monotonic() - reported > 60:
            reported = time.monotonic()
            memory, files, running = samples[-1]
            print(
                f"  {(reported - begun) / 60:.0f} min: {memory:.0f} MiB, {files} descriptors, {running} threads",
                flush=True,
            )
        time.sleep(1.0)
    told, _ = asker.communicate(timeout=PATIENCE + 60)
    try:
        mess, _ = other.communicate(timeout=60)
    except subprocess.TimeoutExpired:
        other.kill()
        mess = b'{"the attacker did not end": 1}'
    return _judged(json.loads(told), Counter(json.loads(mess)), samples, seconds, rate, service)


def _judged(
    result: dict[str, Any],
    events: Counter[str],
    samples: list[tuple[float, int, int]],
    seconds: float,
    rate: float,
    service: Service,
) -> tuple[str, list[str]]:
    broken = []
    count = len(result["requests"])
    length = min(60.0, seconds / 5)
    minutes: list[list[float]] = [[] for _ in range(max(1, round(seconds / length)))]
    for at, took in result["requests"]:
        minutes[min(len(minutes) - 1, int(at / length))].append(took)
    highs = [p95(one) for one in minutes if one]
    medians = [statistics.median(one) for one in minutes if one]
    # Processes are killed and come back, so that most samples lack one of them: what all take together are the highest.
    half = max(1, len(samples) // 2)
    growth = [p95([x[i] for x in samples[half:]]) - p95([x[i] for x in samples[:half]]) for i in range(3)]
    if result["lost"]:
        broken.append(f"{len(result['lost'])} requests lost, such as {result['lost'][0]}")
    if result["wrong"]:
        broken.append(f"{len(result['wrong'])} answers are wrong, such as {result['wrong'][0]}")
    if growth[0] > GROWTH:
        broken.append(f"memory grew by {growth[0]:.0f} MiB")
    if growth[1] > 8 or growth[2] > 8:
        broken.append(f"descriptors grew by {growth[1]:.0f}, threads by {growth[2]:.0f}")
    for name, values in (("p95", highs), ("median", medians)):
        if values[-1] > NOISE * max(values[0], statistics.median(values)):
            broken.append(f"{name} of the last minute is {values[-1]:.3f} s, of the first {values[0]:.3f} s")
    if not service.alive() or service.get("/ready", 10)[0] != 200:
        broken.append("the service is not ready at the end")
    happened = ", ".join(f"{name} × {number}" for name, number in sorted(events.items()))
    outcome = (
        f"{count:,} requests at {rate:.1f}/s, {len(result['lost'])} lost, {len(result['wrong'])} wrong, "
        f"{result['again']} asked again; memory {growth[0]:+.0f} MiB, descriptors {growth[1]:+.0f}, "
        f"threads {growth[2]:+.0f}; median {1000 * medians[0]:.0f} → {1000 * medians[-1]:.0f} ms, "
        f"p95 {1000 * highs[0]:.0f} → {1000 * highs[-1]:.0f} ms (minutes: "
        f"{', '.join(f'{1000 * x:.0f}' for x in highs)}); {happened}"
    )
    return outcome, broken


if __name__ == "__main__":
    end_with_parent()
    resource.setrlimit(resource.RLIMIT_AS, (1 << 30, 1 << 30))
    if sys.argv[1] == "ask":
        given = json.loads(Path(sys.argv[5]).read_text(encoding="utf-8"))
        print(json.dumps(asyncio.run(ask_all(int(sys.argv[2]), float(sys.argv[3]), float(sys.argv[4]), given))))
    else:
        print(json.dumps(asyncio.run(mischief(int(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4])))))

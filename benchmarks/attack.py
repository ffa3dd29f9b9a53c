"""heedful under attack: the service, the readers of files, the client, the markup; and a soak.

python benchmarks/attack.py all                       everything but the soak, a table, exit code 1 if a bound is broken
python benchmarks/attack.py service                   all attacks on the service; also: files, client, markup, mutations
python benchmarks/attack.py png slow-bodies           some attacks by name
python benchmarks/attack.py soak --minutes 10
python benchmarks/attack.py list                      the names, with what each does

Under each attack on the service:
  memory    all processes of the service together stay under their resting size + 200 MiB (PSS)
  latency   the p95 of a polite client, who asks 8 times a second from another address, stays under 3 times its value
            with a dummy process that is as busy as the attacker, measured in turns in the same run
  answers   no request of the polite client is lost or answered wrongly
  recovery  memory, descriptors, threads, processes, latency and /ready are back to normal within 5 s

A file attack runs a command on a hostile file: it ends in time, with the exit code and the words that are expected,
without a traceback, and takes at most 200 MiB more than the same command on a good file.

Attacker, polite client and service are processes of their own; only loopback addresses are used, and only servers that
this program started. An attack is stopped when the service takes 1,200 MiB more than at rest. Every attack has a time
limit. Without --model, a small Transformer is trained once on the embedded corpus (a minute or two), and kept in the
folder for temporary files.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import attack_requests
import attack_service as tools
from attack_service import HERE, MEMORY, RECOVERY, ROOT, SLOWER, Phase, Rest, Service, p95

SHORT = ("--idle", "3", "--header-seconds", "3", "--body-seconds", "3")


@dataclass
class Row:
    """What an attack showed."""

    attack: str
    outcome: str
    broken: list[str] = field(default_factory=list)
    rest_mib: float | None = None
    peak_mib: float | None = None
    dummy_p95: float | None = None
    attack_p95: float | None = None
    health_max: float | None = None
    recovered: float | None = None
    seconds: float = 0.0
    details: list[str] = field(default_factory=list)

    def cells(self) -> tuple[str, ...]:
        """Return the columns of the table."""

        def number(value: float | None, form: str) -> str:
            return "" if value is None else format(value, form)

        ratio = ""
        if self.dummy_p95 and self.attack_p95 is not None:
            ratio = f"{self.attack_p95 / self.dummy_p95:.1f}"
        over = "" if self.peak_mib is None or self.rest_mib is None else f"+{max(0, self.peak_mib - self.rest_mib):.0f}"
        return (
            self.attack,
            number(self.rest_mib, ".0f"),
            over,
            "" if self.dummy_p95 is None else f"{1000 * self.dummy_p95:.0f}",
            "" if self.attack_p95 is None else f"{1000 * self.attack_p95:.0f}",
            ratio,
            "" if self.health_max is None else f"{1000 * self.health_max:.0f}",
            number(self.recovered, ".1f"),
            "BROKEN: " + "; ".join(self.broken) if self.broken else "held",
            self.outcome,
        )


HEADS = (
    "attack",
    "MiB",
    "peak",
    "p95 dummy ms",
    "p95 ms",
    "ratio",
    "health max ms",
    "normal after s",
    "",
    "attacker saw",
)


def table(rows: Sequence[Row]) -> str:
    """Return rows as a Markdown table."""
    lines = ["| " + " | ".join(HEADS) + " |", "|" + "---|" * len(HEADS)]
    return "\n".join([*lines, *("| " + " | ".join(row.cells()) + " |" for row in rows)])


# ------------------------------------------------------------------------------------------------ attacks on a service

Expect = Callable[[Mapping[str, int], Service], str]


def _closed(count: int) -> Expect:
    """Expect that the service closed at least so many connections by itself."""

    def check(report: Mapping[str, int], _: Service) -> str:
        ended = sum(n for name, n in report.items() if name.startswith(("closed", "answered", "no connection")))
        return "" if ended >= count else f"{ended} connections of {count} were closed"

    return check


def _none(*names: str) -> Expect:
    """Expect that nothing of this kind happened."""

    def check(report: Mapping[str, int], _: Service) -> str:
        return "; ".join(f"{report[name]} × {name}" for name in names if report.get(name))

    return check


def _no_500(report: Mapping[str, int], service: Service) -> str:
    return _none("500", "redirects to a foreign host")(report, service)


@dataclass(frozen=True)
class Kind:
    """How a service is attacked: its options, its limit of descriptors, and what the attacker has to see."""

    options: tuple[str, ...] = ()
    files: int = 0
    expect: Expect = _no_500
    lead: float = 0.3  # seconds that the attacker is ahead of the polite client


ON_SERVICE: dict[str, Kind] = {
    "idle": Kind(SHORT, expect=_closed(200)),
    "half-headers": Kind(SHORT, expect=_closed(200)),
    "slow-headers": Kind(SHORT, expect=_closed(200)),
    "slow-bodies": Kind(SHORT, expect=_closed(300)),
    "connections": Kind(files=1024, lead=3.0),
    **{name: Kind(expect=_none("sent whole", "500")) for name in ("header", "headers", "url", "trailers")},
    **{
        name: Kind()
        for name in (
            *(
                "chunk-extension",
                "body",
                "large-bodies",
                "small-chunks",
                "pipelined",
                "pipelined-posts",
                "slow-readers",
                "cancelled",
                "malformed",
                "page-requests",
            ),
            *("json-bodies", "markup-texts", "cluster", "clusters", "marks", "flags", "one-word", "long-texts"),
            *("beams", "streams", "align", "figures", "png", "pngs"),
        )
    },
    "kill-decoder": Kind(expect=_none("there is no such process", "500")),
    "hang-decoder": Kind(expect=_none("there is no such process", "500")),
    "kill-png": Kind(expect=_none("there is no such process")),
    "hang-png": Kind(expect=_none("there is no such process")),
}


class Lab:
    """Starts services, keeps them while they hold, and attacks them."""

    def __init__(self, model: Path, code: Path, rounds: int, seconds: float, folder: Path) -> None:
        self.model, self.code, self.rounds, self.seconds, self.folder = model, code, rounds, seconds, folder
        self.texts = tools.sentences(tools.TEXTS)
        self.answers = folder / "answers.json"
        self.service: Service | None = None
        self.rest = Rest(0, 0, 0, 0, 0)
        self.key: object = None
        self.program: Sequence[str] = ("-m", "heedful")

    @cached_property
    def known(self) -> set[str]:
        """The options of `heedful serve`."""
        environment = {**os.environ, "PYTHONPATH": str(self.code), "COLUMNS": "200"}
        command = [sys.executable, *self.program, "serve", "--help"]
        done = subprocess.run(command, capture_output=True, text=True, env=environment, cwd="/", timeout=60)
        return {word for word in done.stdout.replace("│", " ").split() if word.startswith("--")}

    def supported(self, options: Sequence[str]) -> list[str]:
        """Leave out options, with their values, that the code under attack does not have."""
        pairs = zip(options[::2], options[1::2], strict=True)
        return [part for name, value in pairs if name in self.known for part in (name, value)]

    def started(self, kind: Kind) -> Service:
        """Return a service at rest for an attack."""
        key = (kind.options, kind.files)
        if self.service is not None and self.key == key and self.service.alive():
            return self.service
        self.end()
        options = self.supported(kind.options) if kind.options else []
        self.service = Service([self.model], options, code=self.code, files=kind.files, program=self.program)
        self.service.wait()
        self.rest, self.key = tools.warm(self.service, self.texts, self.answers), key
        return self.service

    def end(self) -> None:
        """Stop the service."""
        if self.service is not None:
            self.service.end()
        self.service = None

    def attack(self, name: str, kind: Kind) -> Row:
        """Attack and a busy dummy in turns; return what it showed."""
        service = self.started(kind)
        attacks: list[Phase] = []
        dummies: list[Phase] = []
        row = Row(name, "", rest_mib=self.rest.memory, recovered=0.0)
        for _ in range(self.rounds):
            command = [str(HERE / "attack_requests.py"), name, str(service.port), str(service.process.pid)]
            command.append(str(self.seconds + kind.lead))
            attacks.append(tools.phase(service, self.answers, self.seconds, command, self.rest, kind.lead))
            took, why = tools.recover(service, self.rest, self.texts)
            row.recovered = max(row.recovered or 0.0, took)
            if why:
                row.broken.append(f"after {RECOVERY:.0f} s: {why}")
            if not service.alive() or attacks[-1].gave_up or why:
                break
            share = attacks[-1].share
            busy = [str(HERE / "attack_service.py"), "busy", f"{share:.3f}", str(self.seconds + 0.3)]
            dummies.append(tools.phase(service, self.answers, self.seconds, busy, self.rest))
        judge(row, attacks, dummies, kind, service)
        if row.broken:
            row.details += [line for line in service.said().splitlines()[-12:] if line.strip()]
            self.end()
        return row


def judge(row: Row, attacks: list[Phase], dummies: list[Phase], kind: Kind, service: Service) -> None:
    """Compare what happened with the bounds."""
    report: dict[str, int] = {}
    for one in attacks:
        for name, count in one.report.items():
            report[name] = report.get(name, 0) + count if isinstance(count, int) else count
    row.outcome = ", ".join(f"{name} × {count}" if isinstance(count, int) else name for name, count in report.items())
    row.peak_mib = max(one.peak for one in attacks)
    row.attack_p95 = p95([x for one in attacks for x in one.latencies])
    row.dummy_p95 = p95([x for one in dummies for x in one.latencies]) if dummies else None
    row.health_max = max((x for one in attacks for x in one.health), default=None)
    lost = [x for one in attacks for x in one.lost]
    wrong = [x for one in attacks for x in one.wrong]
    if any(one.gave_up for one in attacks):
        row.broken.append("memory: stopped at +1,200 MiB")
    elif row.rest_mib is not None and row.peak_mib > row.rest_mib + MEMORY:
        row.broken.append("memory")
    if row.dummy_p95 and row.attack_p95 > SLOWER * row.dummy_p95:
        row.broken.append("latency")
    if lost:
        row.broken.append(f"{len(lost)} polite requests lost")
        row.details += lost[:3]
    if wrong:
        row.broken.append(f"{len(wrong)} wrong answers")
        row.details += wrong[:3]
    if "attacker failed" in report:
        row.broken.append("the attacker failed")
        row.details.append(str(report["attacker failed"]))
    elif why := kind.expect(report, service):
        row.broken.append(why)


# ------------------------------------------------------------------------------------------------ single checks


def full_disk(lab: Lab) -> Row:
    """Log to a full disk: the service answers."""
    lab.end()
    row = Row("full-disk", "")
    service = Service([lab.model], code=lab.code, log=Path("/dev/full"))
    try:
        service.wait(40)
        statuses = [service.ask("/v1/translate", {"text": text})[0] for text in lab.texts[:10]]
        statuses += [service.ask("/v1/translate", {"text": 3})[0], service.get("/nothing")[0], service.get("/ready")[0]]
        row.outcome = f"answers {sorted(set(statuses))}"
        if statuses != [200] * 10 + [422, 404, 200]:
            row.broken.append(f"statuses {statuses}")
        pid = service.process.pid
        for child in tools.children_with(pid, tools.DECODER):
            os.kill(child, signal.SIGKILL)  # something to log
        time.sleep(1)
        if service.ask("/v1/translate", {"text": lab.texts[0]})[0] != 200:
            row.broken.append("no answer after something was logged")
        if (ended := service.end()) != 0:
            row.broken.append(f"it ended with {ended}")
    except (OSError, RuntimeError) as error:
        row.broken.append(str(error)[:200])
    finally:
        service.end()
    return row


def shutdown(lab: Lab) -> Row:
    """Stop the service while bodies are half sent and connections idle: it ends within 5 s."""
    lab.end()
    row = Row("shutdown", "")
    service = Service([lab.model], code=lab.code)
    held: list[socket.socket] = []
    try:
        service.wait()
        head = attack_requests.head("POST", "/v1/translate", "Content-Type: application/json", "Content-Length: 1000")
        for sent in (head + b'{"text": "', head[:40], b"", head + b'{"text": "') * 4:
            held.append(socket.create_connection(("127.0.0.1", service.port), timeout=5))
            held[-1].sendall(sent)
        time.sleep(0.5)
        begun = time.monotonic()
        ended = service.end(45)
        took = time.monotonic() - begun
        row.outcome, row.recovered = f"ended with {ended} after {took:.1f} s", took
        if took > RECOVERY or ended != 0:
            row.broken.append(f"took {took:.1f} s to end, with {ended}")
    except (OSError, RuntimeError) as error:
        row.broken.append(str(error)[:200])
    finally:
        for one in held:
            one.close()
        service.end()
    return row


def odd_name(lab: Lab) -> Row:
    """Serve a model folder whose name cannot be decoded: /v1/models is answered."""
    lab.end()
    row = Row("odd-name", "")
    path = lab.folder / os.fsdecode(b"m\xff\xfe\x1b[31m")
    if not path.exists():
        shutil.copytree(lab.model, path)
    service = Service([path], code=lab.code)
    try:
        service.wait(30)
        status, content = service.get("/v1/models")
        text = service.ask("/v1/translate", {"text": lab.texts[0]})
        row.outcome = f"/v1/models {status}, /v1/translate {text[0]}"
        if status != 200 or text[0] != 200:
            row.broken.append(row.outcome)
        else:
            json.loads(content)
        if b"\x1b" in content or "\x1b" in service.said():
            row.broken.append("an escape sequence of the name is printed raw")
    except (OSError, RuntimeError) as error:
        if service.process.poll() == 2 and "Traceback" not in str(error):
            row.outcome = "refused with exit code 2"
        else:
            row.broken.append(str(error)[-200:])
    finally:
        service.end()
    return row


def routes(lab: Lab) -> Row:
    """POST /v1/models is 405; a trailing slash does not send anybody to the host that the request names."""
    lab.end()
    row = Row("routes", "")
    service = Service([lab.model], ["--allow-host", "evil.example"], code=lab.code)
    try:
        service.wait()
        with socket.create_connection(("127.0.0.1", service.port), timeout=5) as one:
            one.sendall(
                b"POST /v1/models HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1\r\nConnection: close\r\n\r\n1"
            )
            plain = int(one.recv(65536).split()[1])
        status = service.ask("/v1/models", {})[0]
        row.outcome = f"POST /v1/models {status} with JSON, {plain} without"
        if (status, plain) != (405, 405):
            row.broken.append(row.outcome)
        for path in ("/v1/models/", "/v1/translate/", "/health/", "//evil.example", "/docs/"):
            with socket.create_connection(("127.0.0.1", service.port), timeout=5) as one:
                request = f"GET {path} HTTP/1.1\r\nHost: evil.example\r\nConnection: close\r\n\r\n"
                one.sendall(request.encode())
                said = one.recv(65536).partition(b"\r\n\r\n")[0].lower()
            location = [line for line in said.split(b"\r\n") if line.startswith(b"location:") and b"evil" in line]
            row.broken += [f"{path}: {line.decode('latin-1')}" for line in location]
    except (OSError, RuntimeError) as error:
        row.broken.append(str(error)[:200])
    finally:
        service.end()
    return row


def panic(lab: Lab) -> Row:
    """Serve a model whose tokenizer panics at long texts, beside one that does not.

    A folder whose tokenizer truncates with a stride over its length is served, if it is accepted; else the panic is put
    into the tokenizers of the running service.
    """
    from attack_bombs import panicking

    lab.end()
    other = panicking(lab.model, lab.folder / "panicking")
    try:
        service = Service([lab.model, f"other={other}"], code=lab.code)
        how = "by its folder"
        try:
            service.wait()
        except RuntimeError as error:
            if service.process.poll() != 2 or "Traceback" in str(error):
                return Row("panics", "", [str(error)[-300:]])
            how = "its folder is refused; put into the service"
            program = [str(HERE / "attack_panic.py")]
            service = Service([lab.model, f"other={lab.model}"], code=lab.code, program=program)
            service.wait()
        lab.service, lab.key = service, "panic"
        lab.rest = tools.warm(service, lab.texts, lab.answers)
        row = _panicked(lab, service)
        row.outcome += f" ({how})"
        return row
    except (OSError, RuntimeError) as error:
        return Row("panics", "", [str(error)[-300:]])
    finally:
        lab.end()


def _panicked(lab: Lab, service: Service) -> Row:
    kind = Kind(expect=lambda report, _: "")
    lab.key = (kind.options, kind.files)
    row = lab.attack("panics", kind)
    if service.alive():
        try:
            status, _ = service.ask("/v1/translate", {"text": " ".join(lab.texts * 2)}, 20)
            if status != 200:
                row.broken.append(f"a long text of the other model afterwards: {status}")
        except OSError as error:
            row.broken.append(f"a long text of the other model afterwards: {error}")
    return row


SINGLE: dict[str, Callable[[Lab], Row]] = {
    "full-disk": full_disk,
    "shutdown": shutdown,
    "odd-name": odd_name,
    "routes": routes,
    "panics": panic,
}


# ------------------------------------------------------------------------------------------------ the command


def names() -> dict[str, list[str]]:
    """Return the names of attacks by group."""
    import attack_bombs
    import attack_client

    return {
        "service": [*ON_SERVICE, *SINGLE],
        "files": list(attack_bombs.ATTACKS),
        "client": list(attack_client.ANSWERS),
        "others": [name for name in ("markup", "mutations") if _plugged(name)],
    }


PLUGGED = {"markup": "attack_markup.py", "mutations": "attack_files.py"}
COUNT = {"markup": "--inputs", "mutations": "--count"}


def _plugged(name: str) -> bool:
    return (HERE / PLUGGED[name]).is_file()


def plugged(name: str, options: argparse.Namespace) -> Row:
    """Run another benchmark as a process: exit code 0 means that its bounds hold."""
    command = [sys.executable, str(HERE / PLUGGED[name])]
    if options.count:
        command += [COUNT[name], str(options.count)]
    environment = {**os.environ, "PYTHONPATH": str(options.code)}
    begun = time.monotonic()
    try:
        done = subprocess.run(command, text=True, env=environment, timeout=options.limit, stdout=subprocess.PIPE)
    except subprocess.TimeoutExpired:
        return Row(name, "", [f"did not end in {options.limit:.0f} s"])
    print(done.stdout, flush=True)
    lines = [line for line in done.stdout.splitlines() if line.strip()]
    row = Row(name, lines[-1] if lines else "", seconds=time.monotonic() - begun)
    if done.returncode:
        row.broken.append(f"ended with {done.returncode}")
    return row


def describe() -> str:
    """Return all names with what they do."""
    import attack_bombs
    import attack_client

    lines = []
    documented: dict[str, object] = {**attack_requests.ATTACKS, **SINGLE, **attack_bombs.ATTACKS}
    for group, found in names().items():
        lines.append(f"{group}:")
        for name in found:
            what = (getattr(documented.get(name), "__doc__", None) or attack_client.ABOUT).splitlines()[0]
            lines.append(f"  {name:<18} {PLUGGED.get(name, what)}")
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    """Attack, print a table, and return 1 if a bound is broken."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("attacks", nargs="+", help="all, list, soak, a group, or names of attacks", metavar="ATTACK")
    parser.add_argument("--model", type=Path, help="a model folder that reads Hindi; otherwise one is trained once")
    parser.add_argument("--code", type=Path, default=ROOT, help="the checkout to attack; otherwise this one")
    parser.add_argument("--rounds", type=int, default=2, help="of attack and dummy in turns (2)")
    parser.add_argument("--seconds", type=float, default=6.0, help="of each attack and each dummy (6)")
    parser.add_argument("--minutes", type=float, default=10.0, help="of the soak (10)")
    parser.add_argument("--count", type=int, default=0, help="of mutations or texts; 0: as many as the benchmark likes")
    parser.add_argument("--limit", type=float, default=3600.0, help="seconds for markup and mutations at most")
    parser.add_argument("--json", type=Path, help="write the numbers here")
    options = parser.parse_args(arguments)
    groups = names()
    wanted: list[str] = []
    for name in options.attacks:
        if name == "all":
            wanted += [one for group in groups.values() for one in group]
        elif name in groups:
            wanted += groups[name]
        elif name in ("list", "soak") or any(name in group for group in groups.values()):
            wanted.append(name)
        else:
            known = ", ".join(["all", "list", "soak", *groups, *(x for g in groups.values() for x in g)])
            parser.error(f"there is no attack {name!r}; choose from {known}")
    if "list" in wanted:
        print(describe())
        return 0
    options.code = options.code.resolve()
    rows = run(dict.fromkeys(wanted), options)
    print("\n" + table(rows))
    for row in rows:
        for line in row.details if row.broken else ():
            print(f"{row.attack}: {line}")
    broken = [row.attack for row in rows if row.broken]
    print(f"\n{len(rows) - len(broken)} held, {len(broken)} broken" + (f": {', '.join(broken)}" if broken else ""))
    if options.json:
        options.json.write_text(json.dumps([asdict(row) for row in rows], indent=2) + "\n", encoding="utf-8")
    return 1 if broken else 0


def run(wanted: Mapping[str, Any], options: argparse.Namespace) -> list[Row]:
    """Run attacks one after the other."""
    import attack_bombs
    import attack_client
    import attack_soak

    rows: list[Row] = []
    with tempfile.TemporaryDirectory(prefix="heedful-attack-") as name:
        model = (options.model or tools.model_folder()).resolve()
        lab = Lab(model, options.code, options.rounds, options.seconds, Path(name))
        try:
            for attack in wanted:
                begun = time.monotonic()
                if attack in SINGLE:
                    row = SINGLE[attack](lab)
                elif attack in ON_SERVICE:
                    row = _guarded(lab, attack)
                elif attack in attack_bombs.ATTACKS:
                    row = Row(attack, *attack_bombs.run(attack, lab.code, lab.folder))
                elif attack in attack_client.ANSWERS:
                    row = Row(attack, *attack_client.run(attack, lab.code))
                elif attack == "soak":
                    row = Row("soak", *attack_soak.run(lab.model, lab.code, lab.folder, options.minutes))
                else:
                    row = plugged(attack, options)
                row.seconds = time.monotonic() - begun
                rows.append(row)
                print(" ".join(cell for cell in row.cells() if cell) + f" ({row.seconds:.0f} s)", flush=True)
        finally:
            lab.end()
    return rows


def _guarded(lab: Lab, attack: str) -> Row:
    try:
        return lab.attack(attack, ON_SERVICE[attack])
    except (OSError, RuntimeError) as error:
        lab.end()
        return Row(attack, "", [str(error)[-300:]])


if __name__ == "__main__":
    sys.exit(main())

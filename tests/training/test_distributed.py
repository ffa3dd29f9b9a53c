"""Several processes that share a run, started as users start them; killed, interrupted, and told nonsense."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch
from conftest import ROOT, Done
from safetensors.torch import load_file
from small_runs import benchmark
from square_images import draw_squares, settings

import heedful
from heedful.data.formats import PairFile
from heedful.errors import ConfigError, DataError, WorkerError
from heedful.training import Inputs, Reporter
from heedful.training.distributed import ALONE, Processes, joined
from heedful.training.setup import set_up

faults = benchmark("faults")
Cli = Callable[..., Done]
SAID = "another process of this run has died or cannot be reached; the last checkpoint is complete"
TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
PATIENCE = 300  # seconds for what takes a few on a quiet machine
linux = pytest.mark.skipif(sys.platform != "linux", reason="a process's rank is read from /proc")


def train(out: Path, steps: int, family: str = "rnn") -> list[str]:
    """A command without dropout, which is drawn by each process; batches of 3 sometimes leave one with no sentence.

    In fp32 on every CPU: losses are compared to its rounding.
    """
    pairs = out.parent / "pairs.tsv"
    if not pairs.exists():
        faults.write_pairs(pairs)
    changed = ("model.dropout=0", "training.batch_sentences=3", "training.metric=loss", "training.precision=fp32")
    more = ["--json", *(part for setting in changed for part in ("--set", setting))]
    return ["train", str(pairs), "--out", str(out), *faults.options(family, steps), *more]


@contextmanager
def started(command: Sequence[str], environment: dict[str, str], **more: str) -> Iterator[subprocess.Popen[str]]:
    """A process whose stdout and stderr are read at its end; never left behind."""
    process = subprocess.Popen(
        command, cwd=ROOT, env={**environment, **more}, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    try:
        yield process
    finally:
        process.terminate()  # torchrun passes it on
        process.communicate()


def torchrun(command: Sequence[str], environment: dict[str, str]) -> Done:
    with started([*TORCHRUN, "-m", "heedful", *command], environment) as process:
        out, err = process.communicate(timeout=PATIENCE)
        return Done(process.returncode, out, err)


def until(happened: Callable[[], bool], process: subprocess.Popen[str]) -> None:
    end = time.monotonic() + PATIENCE
    while not happened():
        assert time.monotonic() < end
        assert process.poll() is None, process.communicate()[1]
        time.sleep(0.01)


def workers(process: subprocess.Popen[str]) -> list[int]:
    """The processes that torchrun started, in the order of their ranks."""
    found = {}
    for pid in Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split():
        variables = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
        found[next(v for v in variables if v.startswith(b"RANK="))] = int(pid)
    return [found[rank] for rank in sorted(found)]


def same_losses(one: Path, other: Path, within: float = 1e-5) -> None:
    """Two runs measured the same losses, to rounding, which grows with the steps."""
    found = [[json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()] for out in (one, other)]
    for mine, theirs in zip(*found, strict=True):
        assert mine.keys() == theirs.keys()
        for name in mine.keys() & {"step", "epoch", "rate", "loss", "valid_loss"}:
            assert theirs[name] == pytest.approx(mine[name], rel=within), name


def same_weights(one: Path, other: Path, within: float = 1e-5) -> None:
    weights, others = (load_file(out / "model.safetensors") for out in (one, other))
    for name, tensor in weights.items():
        torch.testing.assert_close(others[name], tensor, rtol=100 * within, atol=within)


@pytest.mark.slow
def test_one_process_then_two_then_one_is_one_run(
    tmp_path: Path, heedful_cli: Cli, environment: dict[str, str]
) -> None:
    assert heedful_cli(*train(tmp_path / "whole", 30)).code == 0
    assert heedful_cli(*train(tmp_path / "m", 6)).code == 0
    two = torchrun([*train(tmp_path / "m", 24), "--resume"], environment)
    assert two.code == 0, two.err
    assert [json.loads(line)["step"] for line in two.out.splitlines()] == [24]
    assert two.err.count("resuming from step 6") == two.err.count("on cpu, 2 processes") == 1
    assert two.err.count("all steps done, after step 24") == 1
    assert heedful_cli(*train(tmp_path / "m", 30), "--resume").code == 0
    same_losses(tmp_path / "whole", tmp_path / "m")
    same_weights(tmp_path / "whole", tmp_path / "m")


@pytest.mark.slow
def test_two_processes_from_the_beginning(tmp_path: Path, heedful_cli: Cli, environment: dict[str, str]) -> None:
    assert heedful_cli(*train(tmp_path / "one", 40, "transformer")).code == 0
    assert torchrun(train(tmp_path / "two", 40, "transformer"), environment).code == 0
    # Not the weights: a bias of keys changes no softmax, its gradient is rounding alone, and Adam follows that.
    same_losses(tmp_path / "one", tmp_path / "two")


SHARED = """
import sys
import numpy as np
import torch
from heedful.config import Config
from heedful.data.batches import Batch
from heedful.models import build
from heedful.models.image import running_statistics
from heedful.training.distributed import joined
from heedful.training.step import TrainingStep

image = {"pixels": 16, "patch": 4, "filters": 4, "blocks": 1}
sizes = {"family": "rnn", "width": 8, "embedding": 6}
config = Config.build({"model": sizes, "image": image, "training": {"ema": 0.5}})
with joined() as processes:
    torch.manual_seed(0)
    model = build(config.model, config.image, 9).train()
    step = TrainingStep(model, config.training, torch.device("cpu"), False, processes)
    generator = torch.Generator().manual_seed(processes.rank)
    for number in range(1, 4):
        x = torch.randint(0, 256, (3 + processes.rank, 16, 16, 3), dtype=torch.uint8, generator=generator)
        step([Batch(x, torch.tensor([[2, 4, 5, 3]] * len(x)), np.arange(len(x)), 3 * len(x))], 21, number, 0.01)
    tensors = [*model.state_dict().values(), *step.average.values]
    assert all(statistic.any() for statistic in running_statistics(model).values())
    ours, theirs = processes.gather([tensor.detach() for tensor in tensors])
    assert len(ours) > 40
    assert all(torch.equal(a, b) for a, b in zip(ours, theirs, strict=True))
    if processes.first:
        print("equal", len(ours))
"""


@pytest.mark.slow
def test_statistics_of_batch_normalisation_are_the_same_in_all_processes(
    tmp_path: Path, environment: dict[str, str]
) -> None:
    script = tmp_path / "shared.py"
    script.write_text(SHARED)
    with started([*TORCHRUN, str(script)], environment) as process:
        out, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0, err
    assert out.startswith("equal")
    assert "Warning" not in err


@pytest.mark.slow
def test_a_captioner_learns_in_two_processes(tmp_path: Path, environment: dict[str, str]) -> None:
    """Batch normalisation of half a batch each; the model that is written captions images that it has not seen."""
    shown, unseen = draw_squares(tmp_path / "a", 300), draw_squares(tmp_path / "b", 40, seed=9)
    sections = settings(training={"steps": 250, "valid_every": 125, "ema": 0.9, "precision": "fp32"})
    sets = [
        part
        for section, values in sections.items()
        for name, value in values.items()
        if name != "family"
        for part in ("--set", f"{section}.{name}={str(value).lower()}")
    ]
    command = [
        "train",
        str(shown.captions),
        "--images",
        str(shown.images),
        "--out",
        str(tmp_path / "m"),
        "--model",
        "rnn",
        "--preset",
        "none",
        *sets,
    ]
    done = torchrun(command, environment)
    assert done.code == 0, done.err
    outputs = heedful.load(tmp_path / "m").caption([unseen.images / name for name, _ in unseen.rows])
    exact = sum(output.text == caption for output, (_, caption) in zip(outputs, unseen.rows, strict=True))
    assert exact >= 36


@pytest.mark.slow
@linux
@pytest.mark.parametrize("rank", [0, 1])
def test_when_a_worker_dies_torchrun_goes_on_from_the_last_checkpoint(
    tmp_path: Path, heedful_cli: Cli, environment: dict[str, str], rank: int
) -> None:
    out = tmp_path / "m"
    assert heedful_cli(*train(tmp_path / "whole", 200)).code == 0
    command = [*TORCHRUN, "--max-restarts", "1", "-m", "heedful", *train(out, 200)]
    with started(command, environment) as process:
        until(lambda: faults.step_of(out) > 5, process)
        os.kill(workers(process)[rank], signal.SIGKILL)
        _, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0, err
    assert f"process {1 - rank} of 2: {SAID}" in err
    assert err.count("resuming from step") == 1
    same_losses(tmp_path / "whole", out, 1e-3)
    same_weights(tmp_path / "whole", out, 1e-3)


def free_port() -> int:
    """A port that nobody else will take: below those that the system hands out, and another one in every process."""
    port = 12_000 + os.getpid() % 10_000
    while True:
        with socket.socket() as tried:
            tried.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                tried.bind(("127.0.0.1", port))
            except OSError:
                port += 10_000 if port < 22_000 else 1
            else:
                return port


@contextmanager
def by_hand(
    commands: Sequence[Sequence[str]], environment: dict[str, str]
) -> Iterator[tuple[subprocess.Popen[str], subprocess.Popen[str]]]:
    """Two processes without torchrun, which would end the other one when one ends."""
    place = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()), "WORLD_SIZE": "2"}
    first, second = ([sys.executable, "-m", "heedful", *command] for command in commands)
    with (
        started(first, environment, **place, RANK="0", LOCAL_RANK="0") as one,
        started(second, environment, **place, RANK="1", LOCAL_RANK="1") as other,
    ):
        yield one, other


@pytest.mark.slow
@pytest.mark.parametrize("rank", [0, 1])
def test_the_others_stop_with_a_message_when_one_is_killed(
    tmp_path: Path, environment: dict[str, str], rank: int
) -> None:
    out = tmp_path / "m"
    with by_hand([train(out, 100_000)] * 2, environment) as processes:
        until(lambda: faults.step_of(out) > 5, processes[0])
        processes[rank].kill()
        _, err = processes[1 - rank].communicate(timeout=PATIENCE)
    assert processes[1 - rank].returncode == 1
    assert err.splitlines()[-1].startswith(f"heedful: process {1 - rank} of 2: {SAID}")
    assert "Traceback" not in err


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_to_torchrun_leaves_a_checkpoint(
    tmp_path: Path, heedful_cli: Cli, environment: dict[str, str], number: signal.Signals
) -> None:
    out = tmp_path / "m"
    command = train(out, 100_000)
    command[command.index("training.checkpoint_every=3")] = "training.checkpoint_every=100000"
    with started([*TORCHRUN, "-m", "heedful", *command], environment) as process:
        until(lambda: faults.step_of(out) > 5, process)
        process.send_signal(number)
        _, err = process.communicate(timeout=PATIENCE)
    assert err.count("stopping after this step and writing a checkpoint") == 1
    assert err.count("stopped after step") == 1
    (left,) = (out / "checkpoints").glob("0*")
    step = int(left.name)
    assert step == faults.step_of(out) > 5
    assert f"resuming from step {step}" in heedful_cli(*command, "--resume", "--steps", step + 1).err


@pytest.mark.slow
def test_a_mistake_is_said_once(tmp_path: Path, environment: dict[str, str]) -> None:
    done = torchrun([*train(tmp_path / "m", 5), str(tmp_path / "nosuch.tsv")], environment)
    assert done.err.count("nosuch.tsv: there is no such file") == 1
    assert done.err.count("heedful: ") == 1
    assert "exitcode  : 2" in done.err
    assert 'heedful/training/loop.py"' not in done.err  # as a traceback of ours would have it


@pytest.mark.slow
@linux
def test_a_disk_that_cannot_be_written_stops_all(tmp_path: Path, environment: dict[str, str]) -> None:
    command = train(tmp_path / "m", 5)
    (tmp_path / "m").mkdir()
    (tmp_path / "m" / "checkpoints").symlink_to("/sys")  # where nobody can make a folder, whoever they are
    with by_hand([command] * 2, environment) as processes:
        said = [process.communicate(timeout=PATIENCE)[1] for process in processes]
    assert [process.returncode for process in processes] == [1, 1]
    assert "checkpoints: cannot be written" in said[0]
    assert "heedful: " not in said[1]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("more", "what"),
    [
        (["--set", "training.clip=2"], "another training.clip than process 0 (2.0 and 1.0)"),
        (["--set", "data.max_characters=20"], "another data.max_characters than process 0 (20 and 2000)"),
    ],
)
def test_processes_that_were_told_different_things(
    tmp_path: Path, environment: dict[str, str], more: list[str], what: str
) -> None:
    command = train(tmp_path / "m", 5)
    with by_hand([command, [*command, *more]], environment) as processes:
        said = [process.communicate(timeout=PATIENCE)[1] for process in processes]
    assert [process.returncode for process in processes] == [2, 2]
    assert f"process 1 of 2 has {what}; all machines need the same command" in said[0]


def test_stdin_is_refused_with_several_processes() -> None:
    inputs = Inputs((PairFile("-"),))
    with pytest.raises(ConfigError, match=r"standard input \(-\) cannot be read by several processes"):
        set_up(inputs, {"training": {"device": "cpu"}}, Processes(rank=1, world=2), Reporter())


def test_one_process_alone_needs_no_others() -> None:
    assert ALONE.first
    assert ALONE.gather(3) == [3]
    assert ALONE.share(lambda: 4) == ALONE.in_turn(lambda: 4) == 4
    ALONE.agree({"anything": object()})
    with pytest.raises(DataError, match="a mistake"):
        ALONE.share(mistake)
    with pytest.raises(RuntimeError, match="connection"), ALONE.together():  # nobody there who could have gone
        raise RuntimeError("connection closed by peer")
    with joined() as processes:
        assert processes is ALONE


GLOO = "[/x/third_party/gloo/gloo/transport/tcp/pair.cc:547] Connection closed by peer [127.0.0.1]:5"


def test_what_goes_wrong_here_is_not_the_loss_of_another() -> None:
    one = Processes(rank=0, world=2)
    with pytest.raises(RuntimeError, match="a socket of mine"), one.together(working=True):
        raise RuntimeError("the connection of a socket of mine timed out")
    with pytest.raises(WorkerError, match="process 0 of 2: " + SAID), one.together(working=True):
        raise RuntimeError(GLOO)
    with pytest.raises(WorkerError, match=r"start again with resume=True"), one.together():
        raise RuntimeError("an exchange fails for no other reason")


def mistake() -> None:
    raise DataError("a mistake")


def test_an_environment_that_torchrun_did_not_make(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "two")
    with pytest.raises(ConfigError, match="WORLD_SIZE is 'two', expected a number as torchrun sets it"), joined():
        pass

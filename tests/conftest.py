"""Fixtures of many tests: a small trained model, made once, and the command line run in this process."""

from __future__ import annotations

import atexit
import importlib.util
import io
import os
import random
import shutil
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import pytest
from hypothesis import HealthCheck, settings

# Hypothesis draws the same examples in every run; HYPOTHESIS_PROFILE=random draws others. There are no deadlines: how
# long an example takes depends on what else the machine does.
settings.register_profile("same", derandomize=True, deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("random", settings.get_profile("same"), derandomize=False)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "same"))

# Every process that runs tests has its own cache.
os.environ["HEEDFUL_CACHE"] = tempfile.mkdtemp(prefix="heedful-cache-")
atexit.register(shutil.rmtree, os.environ["HEEDFUL_CACHE"], ignore_errors=True)
# Small models gain nothing from a second thread, and lose much when another process uses the core.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # as `import heedful` sets it, if torch is not loaded before
# Whether bf16 is faster is measured; with this, no test runs on a CPU that has bf16.
os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX2")
# A shell that starts pytest in the background makes it and its child processes ignore Ctrl-C: undo that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
ROOT = Path(__file__).parent.parent

TINY = {
    "text": {"kind": "word"},
    "model": {"width": 16, "embedding": 8, "dropout": 0.1},
    "training": {
        "steps": 40,
        "warmup": 10,
        "rate": 0.02,
        "valid_every": 20,
        "checkpoint_every": 10,
        "log_every": 5,
        "batch_sentences": 32,
        "threads": 1,
        "device": "cpu",
    },
}


# The packages of heedful[serve]. Without them the tests of the service are skipped.
SERVE = ("fastapi", "pydantic", "uvicorn")


class _WithoutService(pytest.Module):
    """A test module that is skipped before it is imported."""

    def collect(self) -> list[pytest.Item]:
        pytest.skip(f"the service needs {', '.join(SERVE)}", allow_module_level=True)


def pytest_pycollect_makemodule(module_path: Path, parent: pytest.Collector) -> pytest.Module | None:
    """Skip the modules of tests/serve where the service cannot be imported."""
    if module_path.parent != ROOT / "tests" / "serve" or all(map(importlib.util.find_spec, SERVE)):
        return None
    return _WithoutService.from_parent(parent, path=module_path)


def copies(count: int = 400, seed: int = 0, longest: int = 5) -> list[tuple[str, str]]:
    """Return pairs of random letters and the same letters in upper case."""
    pick = random.Random(seed)
    sentences = [" ".join(pick.choices("abcdefgh", k=pick.randint(1, longest))) for _ in range(count)]
    return [(s, s.upper()) for s in sentences]


def write_pairs(path: Path, pairs: Sequence[tuple[str, str]]) -> Path:
    path.write_text("".join(f"{x}\t{y}\n" for x, y in pairs), encoding="utf-8")
    return path


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a small model that copies letters; tests must not change it."""
    import heedful

    out = tmp_path_factory.mktemp("tiny") / "model"
    heedful.train(copies(), out, settings=TINY)
    return out


@pytest.fixture(scope="module")
def one_thread() -> Iterator[None]:
    """Compute with one thread: small models gain nothing from a second one."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


class Done(NamedTuple):
    code: int
    out: str
    err: str


@pytest.fixture
def heedful_cli(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., Done]:
    """Run `heedful ARGS…` in this process, with bytes on stdin."""

    def run(*args: object, stdin: bytes = b"") -> Done:
        from heedful.cli import main
        from heedful.cli.output import set_up_logging

        monkeypatch.setattr(sys, "argv", ["heedful", *map(str, args)])
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        capsys.readouterr()
        code: object = 0
        try:
            main()
        except SystemExit as exit_:
            code = exit_.code or 0
        finally:
            set_up_logging()  # as it was before --quiet or --verbose
        captured = capsys.readouterr()
        assert "Traceback" not in captured.err
        return Done(int(str(code)), captured.out, captured.err)

    return run


@pytest.fixture
def environment() -> dict[str, str]:
    """Return the environment for a process that imports this checkout."""
    return {**os.environ, "PYTHONPATH": str(ROOT)}

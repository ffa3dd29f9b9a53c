"""Checkpoints: what a newer heedful wrote is never passed over, and what is not this run's is refused."""

from __future__ import annotations

import json
import shutil
from hashlib import sha256
from pathlib import Path

import pytest
from conftest import TINY, copies

import heedful
from heedful.errors import NewerFormatError, __version__
from heedful.interop.folder import CONFIG, OPTIMIZER, RUN, checksum, pack, unpack
from heedful.training.checkpointing import folders, newest


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("run") / "m"
    training = {**TINY["training"], "steps": 6, "checkpoint_every": 2, "keep": 3, "valid_every": 2, "average": 2}
    heedful.train(copies(80), out, settings={**TINY, "training": {**training, "ema": 0.9}})
    return out


@pytest.fixture
def run(made: Path, tmp_path: Path) -> Path:
    shutil.copytree(made, tmp_path / "m")
    return tmp_path / "m"


def edit(checkpoint: Path, seal: bool = True, **changes: object) -> None:
    head = {**json.loads((checkpoint / CONFIG).read_text(encoding="utf-8")), **changes}
    facts = {name: (checkpoint / name).read_bytes() for name in head["files"]}
    if seal:
        head["files"] = {n: {"bytes": len(c), "sha256": sha256(c).hexdigest()} for n, c in facts.items()}
        head["checksum"] = checksum(head)
    (checkpoint / CONFIG).write_text(json.dumps(head), encoding="utf-8")


@pytest.mark.parametrize("seal", [True, False])
def test_a_checkpoint_of_a_newer_format_is_refused(run: Path, seal: bool) -> None:
    last = folders(run)[0]
    edit(last, seal, format=2, heedful="9.9.9")
    with pytest.raises(
        NewerFormatError, match=rf"{last.name}: written in format 2 by heedful 9\.9\.9; .* {__version__}"
    ):
        newest(run)
    with pytest.raises(NewerFormatError, match="reads format 1"):
        heedful.train(copies(80), run, settings=TINY, resume=True)
    assert [path.name for path in folders(run)] == ["000000006", "000000004", "000000002"]  # nothing was put aside


def test_a_checkpoint_without_a_checksum_of_its_config_is_read(run: Path) -> None:
    for path in folders(run):
        head = json.loads((path / CONFIG).read_text(encoding="utf-8"))
        del head["checksum"]
        (path / CONFIG).write_text(json.dumps(head), encoding="utf-8")
    checkpoint, damaged = newest(run)
    assert checkpoint is not None
    assert (checkpoint.position.step, len(checkpoint.recent), damaged) == (6, 2, {})
    assert checkpoint.average is not None
    assert checkpoint.best is not None


@pytest.mark.parametrize(
    "position",
    [{"step": "6"}, {"step": -1}, {"epoch": 1.5}, {"batch": 10**400}, {"best": 3}, {"best": {"step": "x"}}, [], None],
)
def test_a_position_that_is_none(run: Path, position: object) -> None:
    last = folders(run)[0]
    record = json.loads((last / RUN).read_text(encoding="utf-8"))
    record["position"] = {**record["position"], **position} if isinstance(position, dict) else position
    (last / RUN).write_text(json.dumps(record), encoding="utf-8")
    edit(last)
    checkpoint, damaged = newest(run)
    assert checkpoint is not None
    assert (checkpoint.position.step, list(damaged)) == (4, [last])


@pytest.mark.parametrize("name", [OPTIMIZER, "best.safetensors", "average.safetensors", "recent.safetensors"])
def test_tensors_of_another_shape(run: Path, name: str) -> None:
    last = folders(run)[0]
    tensors = unpack((last / name).read_bytes(), name)
    key = next(key for key, tensor in tensors.items() if tensor.ndim == 2)
    (last / name).write_bytes(pack({**tensors, key: tensors[key][:1]}))
    edit(last)
    _, damaged = newest(run)
    assert list(damaged) == [last]
    assert "has shape" in damaged[last]


@pytest.mark.slow
@pytest.mark.parametrize("name", [OPTIMIZER, "best.safetensors", RUN])
def test_a_file_larger_than_its_model_is_not_read(run: Path, name: str) -> None:
    last = folders(run)[0]
    with (last / name).open("r+b") as file:
        file.truncate(6 * 10**9)
    head = json.loads((last / CONFIG).read_text(encoding="utf-8"))
    head["files"][name]["bytes"] = 6 * 10**9
    edit(last, seal=False, files=head["files"], checksum=checksum(head))
    _, damaged = newest(run)
    assert "has 6000 MB" in damaged[last]

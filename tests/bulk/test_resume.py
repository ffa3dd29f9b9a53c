"""Exactly once: runs that are stopped and continued, changed inputs, shards, and names of outputs."""

from __future__ import annotations

import gzip
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Any, cast

import pytest

import heedful
from heedful.bulk.formats import Columns
from heedful.bulk.journal import Journal, Record
from heedful.bulk.rows import fingerprint
from heedful.bulk.units import Destination, Shard, Unit, kind_of, output_names, plan
from heedful.errors import ConfigError, DataError, DiskError
from heedful.fused.cpu.linear import onednn_is_faster, using_onednn

COLUMNS = Columns("", ("translation",))


@pytest.fixture(scope="module")
def translator(tiny: Path) -> heedful.Translator:
    return heedful.load(tiny, "cpu", threads=1)


def json_file(path: Path, texts: Sequence[object]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts), encoding="utf-8")
    return path


def outputs(folder: Path) -> dict[str, bytes]:
    """The outputs and the manifest, by their names."""
    inside = [path for path in folder.rglob("*") if path.is_file() and ".journal" not in path.parts]
    return {str(path.relative_to(folder)): path.read_bytes() for path in inside}


class KilledError(BaseException):
    """Ends a run as if it was killed: nothing that handles errors of heedful sees it."""


@pytest.mark.parametrize("stop", [1, 2, 3, 4])
def test_a_run_that_is_stopped_is_continued_to_the_same_bytes(
    translator: heedful.Translator, tmp_path: Path, stop: int
) -> None:
    files = [json_file(tmp_path / f"{name}.jsonl", ["a b", "c", "d e f"] * 500) for name in "abc"]
    heedful.translate_files(translator, files, tmp_path / "whole", alignments=True)
    calls = 0

    def progress(state: object) -> None:
        nonlocal calls
        calls += 1
        if calls == stop * 3:
            raise KilledError

    with pytest.raises(KilledError):
        heedful.translate_files(translator, files, tmp_path / "out", alignments=True, progress=progress)
    done = len(outputs(tmp_path / "out")) - 1
    report = heedful.translate_files(translator, files, tmp_path / "out", alignments=True)
    assert (report.before, len(report.outputs)) == (done, 3 - done)
    assert outputs(tmp_path / "out") == outputs(tmp_path / "whole")


@pytest.mark.slow
def test_a_process_that_is_killed_again_and_again(tiny: Path, tmp_path: Path, environment: dict[str, str]) -> None:
    files = [json_file(tmp_path / f"{n}.jsonl", ["a b", "c", "d e f", "g h a b c"] * 500) for n in range(6)]
    command = [sys.executable, "-m", "heedful", "translate", tiny, *files, "--alignments", "--threads", "1", "--out"]
    subprocess.run([*map(str, command), str(tmp_path / "whole")], env=environment, check=True)
    kills = 0
    while True:
        with subprocess.Popen([*map(str, command), str(tmp_path / "out")], env=environment) as process:
            begun = time.monotonic()
            # Later each time, so that it ends; at other places of the work each time.
            while process.poll() is None and time.monotonic() - begun < 3 + 0.37 * kills:
                time.sleep(0.01)
            if process.poll() is not None:
                break
            process.send_signal(signal.SIGKILL)
            kills += 1
    assert process.returncode == 0
    assert kills > 0
    assert outputs(tmp_path / "out") == outputs(tmp_path / "whole")


def test_a_record_that_was_cut_off_is_translated_again(translator: heedful.Translator, tmp_path: Path) -> None:
    files = [json_file(tmp_path / f"{name}.jsonl", [name]) for name in "ab"]
    heedful.translate_files(translator, files, tmp_path / "out")
    before = outputs(tmp_path / "out")
    journal = tmp_path / "out" / ".journal" / "1-of-1.jsonl"
    journal.write_bytes(journal.read_bytes()[:-30])
    report = heedful.translate_files(translator, files, tmp_path / "out")
    assert report.outputs == ["b.jsonl"]
    assert outputs(tmp_path / "out") == before


def test_a_record_that_does_not_fit_on_the_disk_damages_no_other(
    translator: heedful.Translator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class FullDisk:
        """A file that takes only half of the record of a unit that is done."""

        def __init__(self, file: IO[bytes]) -> None:
            self.file = file

        def fileno(self) -> int:
            return self.file.fileno()

        def write(self, line: bytes) -> int:
            return self.file.write(line[: len(line) // 2] if b"blake2b" in line else line)

    file = json_file(tmp_path / "a.jsonl", ["a"])
    done = Journal.done
    with monkeypatch.context() as patched:

        def done_on_a_full_disk(self: Journal, record: Record) -> None:
            assert self._file is not None
            self._file = cast("IO[bytes]", FullDisk(self._file))
            done(self, record)

        patched.setattr(Journal, "done", done_on_a_full_disk)
        with pytest.raises(DiskError, match="No space left"):
            heedful.translate_files(translator, file, tmp_path / "out")
    report = heedful.translate_files(translator, file, tmp_path / "out")
    assert report.outputs == ["a.jsonl"]
    assert heedful.translate_files(translator, file, tmp_path / "out").before == 1


def test_what_a_killed_process_left_is_removed(translator: heedful.Translator, tmp_path: Path) -> None:
    file = json_file(tmp_path / "a.jsonl", ["a"])
    (tmp_path / "out").mkdir()
    for name in (".a.jsonl.1-of-1.partial", ".a.jsonl.1234abcd.partial", ".other.partial"):
        (tmp_path / "out" / name).write_text("half", encoding="utf-8")
    heedful.translate_files(translator, file, tmp_path / "out")
    assert {path.name for path in (tmp_path / "out").glob(".*.partial")} == {".other.partial"}


def test_another_model_other_settings_and_other_inputs_are_noticed(
    translator: heedful.Translator, tmp_path: Path
) -> None:
    from random_translators import random_translator

    file = json_file(tmp_path / "a.jsonl", ["a"])
    heedful.translate_files(translator, file, tmp_path / "out")
    with pytest.raises(ConfigError, match="another model"):
        heedful.translate_files(random_translator("rnn"), file, tmp_path / "out")
    with pytest.raises(ConfigError, match="beam was 1 and is 3"):
        heedful.translate_files(translator, file, tmp_path / "out", beam=3)
    with pytest.raises(ConfigError, match="alignments was False and is True"):
        heedful.translate_files(translator, file, tmp_path / "out", alignments=True)
    json_file(file, ["b"])
    with pytest.raises(ConfigError, match=r"a\.jsonl: has changed.*remove"):
        heedful.translate_files(translator, file, tmp_path / "out")
    (tmp_path / "out" / "a.jsonl").unlink()
    assert heedful.translate_files(translator, file, tmp_path / "out").outputs == ["a.jsonl"]
    assert '"text": "b"' in (tmp_path / "out" / "a.jsonl").read_text(encoding="utf-8")
    assert heedful.translate_files(translator, file, tmp_path / "out").before == 1


def test_an_input_that_was_only_touched_or_moved_is_the_same(translator: heedful.Translator, tmp_path: Path) -> None:
    file = json_file(tmp_path / "a.jsonl", ["a"])
    heedful.translate_files(translator, file, tmp_path / "out")
    os.utime(file, ns=(5, 5))
    assert heedful.translate_files(translator, file, tmp_path / "out").before == 1
    moved = json_file(tmp_path / "moved" / "a.jsonl", ["a"])
    assert heedful.translate_files(translator, moved, tmp_path / "out").before == 1
    other = json_file(tmp_path / "other" / "a.jsonl", ["other"])
    with pytest.raises(ConfigError, match="another file of that name"):
        heedful.translate_files(translator, other, tmp_path / "out")


def test_row_groups_that_change_are_noticed_one_by_one(translator: heedful.Translator, tmp_path: Path) -> None:
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    file = tmp_path / "x.parquet"
    pq.write_table(pa.table({"text": ["a", "b"]}), file, row_group_size=1)
    heedful.translate_files(translator, file, tmp_path / "out")
    pq.write_table(pa.table({"text": ["a", "c"]}), file, row_group_size=1)
    (tmp_path / "out" / "x-00001-of-00002.parquet").unlink()
    report = heedful.translate_files(translator, file, tmp_path / "out")
    assert (report.outputs, report.before) == (["x-00001-of-00002.parquet"], 1)
    pq.write_table(pa.table({"text": ["d", "c"]}), file, row_group_size=1)
    with pytest.raises(ConfigError, match="has changed"):
        heedful.translate_files(translator, file, tmp_path / "out")


def test_outputs_that_were_changed_or_are_of_others_are_not_overwritten(
    translator: heedful.Translator, tmp_path: Path
) -> None:
    file = json_file(tmp_path / "a.jsonl", ["a"])
    mine = json_file(tmp_path / "out" / "a.jsonl", ["mine"])
    with pytest.raises(ConfigError, match="did not write"):
        heedful.translate_files(translator, file, tmp_path / "out")
    mine.unlink()
    heedful.translate_files(translator, file, tmp_path / "out")
    mine.write_text("edited", encoding="utf-8")
    with pytest.raises(ConfigError, match="6 bytes.*remove it"):
        heedful.translate_files(translator, file, tmp_path / "out")
    for out in (tmp_path, file):
        with pytest.raises(ConfigError, match="overwrite this input"):
            heedful.translate_files(translator, file, out)


def test_more_inputs_may_be_added_later(translator: heedful.Translator, tmp_path: Path) -> None:
    first, second = (json_file(tmp_path / f"{name}.jsonl", [name]) for name in "ab")
    heedful.translate_files(translator, first, tmp_path / "out")
    report = heedful.translate_files(translator, [first, second], tmp_path / "out")
    assert (report.outputs, report.before) == (["b.jsonl"], 1)
    assert len(json.loads((tmp_path / "out" / "manifest.json").read_text(encoding="utf-8"))["outputs"]) == 2


def test_shards_make_what_one_run_makes_and_the_plain_command_what_is_missing(
    translator: heedful.Translator, tmp_path: Path
) -> None:
    files = [json_file(tmp_path / f"{name}.jsonl", [name, name]) for name in "abcde"]
    heedful.translate_files(translator, files, tmp_path / "whole")
    third = heedful.translate_files(translator, files[::-1], tmp_path / "out", shard="3/3")
    first = heedful.translate_files(translator, files, tmp_path / "out", shard="1/3")
    assert (third.outputs, first.outputs) == (["c.jsonl"], ["a.jsonl", "d.jsonl"])
    missing = json.loads((tmp_path / "out" / "manifest.json").read_text(encoding="utf-8"))["missing"]
    assert list(missing) == ["b.jsonl", "e.jsonl"]
    assert first.missing == 2
    report = heedful.translate_files(translator, files, tmp_path / "out")
    assert (report.outputs, report.missing) == (["b.jsonl", "e.jsonl"], 0)
    assert outputs(tmp_path / "out") == outputs(tmp_path / "whole")


@pytest.mark.parametrize("shard", ["0/2", "3/2", "1", "a/b", "1/2/3", "-1/2", "1/99999999"])
def test_a_wrong_shard(tmp_path: Path, shard: str) -> None:
    with pytest.raises(ConfigError, match="3/64"):
        Shard.parse(shard)


def test_threads_and_batches_of_the_first_run_are_used_again(translator: heedful.Translator, tmp_path: Path) -> None:
    files = [json_file(tmp_path / f"{name}.jsonl", [name]) for name in "ab"]
    heedful.translate_files(translator, files[:1], tmp_path / "out", batch_tokens=512, threads=1)
    heedful.translate_files(translator, files, tmp_path / "out")
    manifest = json.loads((tmp_path / "out" / "manifest.json").read_text(encoding="utf-8"))
    assert {(one["batch_tokens"], one["threads"]) for one in manifest["outputs"].values()} == {(512, 1)}


def test_names_of_outputs(tmp_path: Path) -> None:
    names = ["a/x.jsonl", "b/x.jsonl", "b/y.tsv", "b/y.txt", "c/z.txt.gz", "d/deep/w.txt", "d/w.tsv"]
    paths = [tmp_path / name for name in names]
    assert list(output_names(paths).values()) == [
        *("a/x.jsonl", "b/x.jsonl", "y.tsv", "y.txt.tsv", "z.tsv.gz", "deep/w.tsv", "w.tsv"),
    ]


def test_inputs_are_files_or_folders_each_once(tmp_path: Path) -> None:
    for name in ("in/b.jsonl", "in/a.jsonl", "in/sub/c.jsonl", "in/.hidden.jsonl", "in/_x/d.jsonl", "in/readme.md"):
        json_file(tmp_path / name, ["a"])
    (tmp_path / "in" / "link.jsonl").symlink_to(tmp_path / "in" / "a.jsonl")
    folder = tmp_path / "in"
    destination, units = plan([folder, folder / "a.jsonl", f"{folder}/../in/a.jsonl"], folder / "out", COLUMNS)
    assert [unit.name for unit in units] == ["a.jsonl", "b.jsonl", "c.jsonl", "link.jsonl"]
    assert destination == Destination(folder / "out")
    json_file(folder / "out" / "a.jsonl", ["an output"])
    assert len(plan([folder], folder / "out", COLUMNS)[1]) == 4


def test_destinations(tmp_path: Path) -> None:
    file, other = (json_file(tmp_path / name, ["a"]) for name in ("a.jsonl", "b.jsonl"))
    (tmp_path / "folder.jsonl").mkdir()
    (tmp_path / "file").write_text("", encoding="utf-8")
    for out, expected in (
        ("new", Destination(tmp_path / "new")),
        ("new.jsonl/", Destination(tmp_path / "new.jsonl")),
        ("folder.jsonl", Destination(tmp_path / "folder.jsonl")),
        ("new.jsonl", Destination(tmp_path, "new.jsonl")),
        ("new.jsonl.gz", Destination(tmp_path, "new.jsonl.gz")),
    ):
        assert plan([file], f"{tmp_path}/{out}", COLUMNS)[0] == expected
    for inputs, out, fact in (
        ([file, other], "new.jsonl", "2 inputs"),
        ([file], "file", "is a file"),
        ([file], "new.tsv", ".jsonl or .txt"),
        ([file], "new.parquet", ".jsonl or .txt"),
    ):
        with pytest.raises(ConfigError, match=fact):
            plan(inputs, tmp_path / out, COLUMNS)


def test_inputs_that_are_not_there_or_of_an_unknown_kind(tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text("text", encoding="utf-8")
    (tmp_path / "empty").mkdir()
    os.mkfifo(tmp_path / "pipe.txt")
    with pytest.raises(DataError, match=r"nope\.txt: there is no such file"):
        plan([tmp_path / "nope.txt"], tmp_path / "out", COLUMNS)
    with pytest.raises(ConfigError, match=r"x\.csv.*\.tsv"):
        plan([tmp_path / "x.csv"], tmp_path / "out", COLUMNS)
    with pytest.raises(ConfigError, match="empty"):
        plan([tmp_path / "empty"], tmp_path / "out", COLUMNS)
    (unit,) = plan([tmp_path / "pipe.txt"], tmp_path / "out", COLUMNS)[1]
    assert "pipe" in unit.fault


def test_the_fingerprint_is_of_weights_vocabularies_and_read_out(tiny: Path, translator: heedful.Translator) -> None:
    import torch

    other = heedful.load(tiny, "cpu")
    assert fingerprint(other) == fingerprint(translator)
    with torch.no_grad():
        next(other.parts.model.parameters()).view(-1)[0] += 1
    assert fingerprint(other) != fingerprint(translator)


def test_the_manifest_of_one_file_is_beside_it(translator: heedful.Translator, tmp_path: Path) -> None:
    file = json_file(tmp_path / "a.jsonl", ["a"])
    heedful.translate_files(translator, file, tmp_path / "b.jsonl.gz")
    with gzip.open(tmp_path / "b.jsonl.gz", "rt") as stream:
        assert json.loads(stream.read())["translation"]
    manifest = json.loads((tmp_path / "b.jsonl.gz.manifest.json").read_text(encoding="utf-8"))
    assert manifest["outputs"]["b.jsonl.gz"]["input"] == str(file)
    assert heedful.translate_files(translator, file, tmp_path / "b.jsonl.gz").before == 1


def test_a_newer_state_of_the_manifest_is_not_replaced_by_an_older_one(tmp_path: Path) -> None:
    """Each shard writes the manifest from all journals, not only from what it knows itself."""
    destination = Destination(tmp_path)
    kind = kind_of(Path("a.jsonl"))
    assert kind is not None
    units = [Unit(f"{name}.jsonl", tmp_path / f"{name}.jsonl", kind, kind) for name in "ab"]
    one, two = (Journal(destination, Shard(number, 2)) for number in (1, 2))
    record: dict[str, Any] = {"rows": 1, "bytes": 1}
    with one.locked(), two.locked():
        one.settle("m", {}, {"threads": 1, "batch_tokens": 1})
        one.load()
        two.done({"unit": "b.jsonl", **record})
        two.write_manifest(units)
        one.done({"unit": "a.jsonl", **record})
        one.write_manifest(units)
        written = (tmp_path / "manifest.json").stat()
        two.write_manifest(units)  # all of it is there
        assert (tmp_path / "manifest.json").stat().st_ino == written.st_ino
        two.fail(units[1], "why")
        two.write_manifest(units)
        assert (tmp_path / "manifest.json").stat().st_mtime_ns != written.st_mtime_ns
    manifest = json.loads((tmp_path / "manifest.json").read_text(encoding="utf-8"))
    assert (manifest["done"], manifest["missing"]) == (2, {})
    assert two.settle("m", {}, {"threads": 9, "batch_tokens": 9}) == {"threads": 1, "batch_tokens": 1}


def test_progress_ends_at_all(translator: heedful.Translator, tmp_path: Path) -> None:
    files = [tmp_path / f"{name}.jsonl" for name in "ab"]
    for file in files:
        file.write_text((json.dumps({"text": "a", "more": "x" * 1000}) + "\n") * 1500, encoding="utf-8")
    states: list[Any] = []
    heedful.translate_files(translator, files, tmp_path / "out", progress=states.append)
    assert (states[-1].rows, states[-1].share, states[-1].all_units) == (3000, 1.0, 2)
    shares = [state.share for state in states]
    assert shares == sorted(shares)
    assert len(set(shares)) == 4  # two portions of each file


def test_an_output_whose_input_is_damaged_since_fails_alone(translator: heedful.Translator, tmp_path: Path) -> None:
    packed, other = tmp_path / "a.jsonl.gz", json_file(tmp_path / "b.jsonl", ["a"])
    content = gzip.compress(b'{"text": "a"}\n' * 2000)
    packed.write_bytes(content)
    heedful.translate_files(translator, [packed], tmp_path / "out")
    packed.write_bytes(content[:-20])
    with pytest.raises(DataError, match=r"1 input failed; 1 are done(.|\n)*a\.jsonl\.gz"):
        heedful.translate_files(translator, [packed, other], tmp_path / "out")
    assert (tmp_path / "out" / "b.jsonl").exists()


@pytest.mark.skipif(sys.platform != "linux", reason="names of files are text elsewhere")
def test_a_name_that_is_not_utf8(translator: heedful.Translator, tmp_path: Path) -> None:
    path = Path(os.fsdecode(os.fsencode(tmp_path) + b"/\xff.txt"))
    path.write_text("a\n", encoding="utf-8")
    heedful.translate_files(translator, path, tmp_path / "out")
    assert heedful.translate_files(translator, path, tmp_path / "out").before == 1


def test_a_clock_that_is_set_back_loses_no_record(
    translator: heedful.Translator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = iter(range(10**6, 0, -1))
    monkeypatch.setattr("heedful.bulk.journal.time.time", lambda: float(next(clock)))
    report = heedful.translate_files(translator, json_file(tmp_path / "a.jsonl", ["a"]), tmp_path / "out")
    assert report.missing == 0
    assert heedful.translate_files(translator, tmp_path / "a.jsonl", tmp_path / "out").before == 1


def test_without_links_between_files_a_run_can_begin(
    translator: heedful.Translator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*names: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "link", refuse)
    heedful.translate_files(translator, json_file(tmp_path / "a.jsonl", ["a"]), tmp_path / "out")
    assert json.loads((tmp_path / "out" / "manifest.json").read_text(encoding="utf-8"))["done"] == 1


def test_the_library_of_products_of_the_first_run_is_used_again(
    tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = [json_file(tmp_path / f"{name}.jsonl", [name]) for name in "ab"]
    chosen: list[bool] = []
    load = heedful.load
    monkeypatch.setattr("heedful.bulk.run.load", lambda *a, **b: chosen.append(onednn_is_faster()) or load(*a, **b))
    with using_onednn(False):
        heedful.translate_files(tiny, files[:1], tmp_path / "out", device="cpu")
    with using_onednn(True):
        heedful.translate_files(tiny, files, tmp_path / "out", device="cpu")
    assert chosen == [False, False]


@pytest.mark.parametrize(
    ("out", "options", "fact"),
    [("in", {}, "another"), ("x.csv", {}, ".tsv"), ("x.txt", {"alignments": True}, "links")],
)
def test_destinations_that_would_lose_something_are_refused(
    translator: heedful.Translator, tmp_path: Path, out: str, options: dict[str, Any], fact: str
) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.txt").write_text("a\n", encoding="utf-8")
    with pytest.raises(ConfigError, match=fact):
        heedful.translate_files(translator, tmp_path / "in", tmp_path / out, **options)


def test_another_precision_is_named_and_not_called_another_model(
    tmp_path: Path, tiny: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    translator = heedful.load(tiny, "cpu", threads=1)
    file = json_file(tmp_path / "a.jsonl", ["a"])
    heedful.translate_files(translator, file, tmp_path / "out")
    monkeypatch.setattr("heedful.bulk.run.fingerprint", lambda _: "other weights")  # as rounded ones are
    with pytest.raises(ConfigError, match="beam was 1 and is 2"):
        heedful.translate_files(translator, file, tmp_path / "out", beam=2)
    with pytest.raises(ConfigError, match="another model"):
        heedful.translate_files(translator, file, tmp_path / "out")

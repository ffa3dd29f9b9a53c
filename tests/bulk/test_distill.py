"""A teacher translates and a student learns: what is learned, what is held out, and runs that are stopped."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from conftest import copies, write_pairs

import heedful
from heedful.bulk import distill as module
from heedful.bulk import rows
from heedful.bulk.distill import Distillation, DistillSettings, Sources, text_source
from heedful.data import PairList
from heedful.data.hindi import pairs as hindi_pairs
from heedful.errors import ConfigError, DataError
from heedful.interop.folder import about
from heedful.metrics import bleu
from heedful.training import Inputs, Progress, Reporter

PAIRS = copies(300, seed=5)
STUDENT: dict[str, Any] = {
    "text": {"kind": "word"},
    "model": {"family": "transformer", "cell": "ssru", "width": 8, "heads": 2, "inner": 16, "layers": 1},
    "training": {"steps": 8, "valid_every": 4, "checkpoint_every": 2, "log_every": 1, "threads": 1, "device": "cpu"},
}
SHORT = {**STUDENT, "training": {**STUDENT["training"], "steps": 2}}


class KilledError(BaseException):
    """Ends a run as if it was killed: nothing that handles errors of heedful sees it."""


def distilled(teacher: Any, pairs: Any, out: Path, **more: Any) -> heedful.Translator:
    given = {"settings": STUDENT, "preset": "none", "verbose": False, **more}
    return heedful.distill(teacher, pairs, out, **given)


def tsv(path: Path) -> list[tuple[str, ...]]:
    return [tuple(line.split("\t")) for line in path.read_text(encoding="utf-8").splitlines()]


def folder_of(out: Path) -> dict[str, bytes]:
    """What was learned and from what: without times."""
    names = ("model.safetensors", "distilled/pairs.tsv", "distilled/valid.tsv")
    return {name: (out / name).read_bytes() for name in names}


@pytest.fixture(scope="module")
def done(tiny: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A student of the small model; tests must not change it."""
    out = tmp_path_factory.mktemp("student") / "s"
    distilled(tiny, PAIRS, out)
    return out


def test_the_student_learns_what_the_teacher_writes(tiny: Path, done: Path) -> None:
    pairs = tsv(done / "distilled" / "pairs.tsv")
    sources = [source for source, _ in pairs]
    translator = heedful.load(tiny, "cpu", threads=1)
    assert [target for _, target in pairs] == [one.text for one in translator.translate(sources, beam=5)]
    assert len(set(sources)) == len(sources)
    assert any(target != source.upper() for source, target in pairs), "the teacher makes mistakes: it wrote these"


def test_validation_has_references_of_pairs_that_nobody_translated(done: Path) -> None:
    valid = tsv(done / "distilled" / "valid.tsv")
    assert valid
    assert set(valid) <= set(PAIRS)
    held = {source for source, _ in valid}
    files = [*(done / "distilled" / "source").iterdir(), *(done / "distilled" / "translated").glob("*.jsonl")]
    texts = [json.loads(line)["source"] for file in files for line in file.read_text().splitlines()]
    assert len(texts) == 2 * len(tsv(done / "distilled" / "pairs.tsv"))
    assert not held & set(texts)
    assert held | set(texts) == {source for source, _ in PAIRS}


def test_the_student_names_its_teacher(tiny: Path, done: Path) -> None:
    notes = about(done)["notes"]
    assert notes["teacher"] == tiny.name
    assert notes["teacher_beam"] == 5
    assert notes["teacher_checksum"] == rows.fingerprint(heedful.load(tiny, "cpu"))


@pytest.mark.parametrize("stop", [2, 5, 9])
def test_a_run_that_is_killed_while_it_translates_gives_the_same_student(
    tiny: Path, done: Path, tmp_path: Path, stop: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "FILE_ROWS", 60)
    calls = 0

    class Killing(Reporter):
        def preparing(self, done: int, what: str) -> None:
            nonlocal calls
            calls += what == "sentences translated"
            if calls == stop:
                raise KilledError

    run = Distillation(tmp_path / "s", asked(tiny), Sources(Inputs((PairList(PAIRS),))))
    run.prepare(Reporter())
    with pytest.raises(KilledError):
        run.translate(lambda state: Killing().preparing(state.rows, "sentences translated"))
    assert not (run.folder / "pairs.tsv").exists()
    distilled(tiny, PAIRS, tmp_path / "s")
    assert folder_of(tmp_path / "s") == folder_of(done)


def asked(teacher: Path, **more: Any) -> DistillSettings:
    return DistillSettings((str(teacher),), {"beam": 5}, settings=STUDENT, preset="none", **more)


@pytest.mark.parametrize("step", [1, 5])
def test_a_run_that_is_killed_while_it_trains_gives_the_same_student(
    tiny: Path, done: Path, tmp_path: Path, step: int
) -> None:
    class Killing(Reporter):
        def progress(self, progress: Progress) -> None:
            if progress.step >= step:
                raise KilledError

    run = Distillation(tmp_path / "s", asked(tiny), Sources(Inputs((PairList(PAIRS),))))
    run.prepare(Reporter())
    run.translate()
    with pytest.raises(KilledError):
        run.train(Killing())
    again = Distillation(tmp_path / "s")  # as `--resume` does: from what is recorded
    again.prepare(Reporter())
    assert again.translate().outputs == []
    assert again.train(Reporter()).step == 8
    assert folder_of(tmp_path / "s") == folder_of(done)
    assert about(tmp_path / "s")["notes"]["teacher"] == tiny.name


@pytest.mark.slow
def test_a_process_that_is_killed_again_and_again_makes_the_same_student(
    tiny: Path, tmp_path: Path, environment: dict[str, str]
) -> None:
    pairs = write_pairs(tmp_path / "pairs.tsv", copies(3000, seed=5, longest=9))
    model = ("width=8", "heads=2", "inner=16", "layers=1", "cell=ssru")
    sets = [*(f"model.{one}" for one in model), "text.kind=word", "training.checkpoint_every=5"]
    command: list[object] = ["distill", tiny, pairs, "--steps", 60, "--device", "cpu", "--threads", 1]
    command = [sys.executable, "-m", "heedful", *command, *(part for one in sets for part in ("--set", one)), "--out"]
    subprocess.run([*map(str, command), str(tmp_path / "whole")], env=environment, check=True)
    kills = 0
    while True:
        with subprocess.Popen([*map(str, command), str(tmp_path / "s")], env=environment) as process:
            begun = time.monotonic()
            # Later each time, so that it ends; at other places of the work each time.
            while process.poll() is None and time.monotonic() - begun < 2 * 1.5**kills:
                time.sleep(0.01)
            if process.poll() is not None:
                break
            process.send_signal(signal.SIGKILL)
            kills += 1
    assert process.returncode == 0
    assert kills > 0
    assert folder_of(tmp_path / "s") == folder_of(tmp_path / "whole")


def test_a_finished_distillation_is_left_as_it_is(tiny: Path, tmp_path: Path) -> None:
    distilled(tiny, PAIRS, tmp_path / "s")
    before = folder_of(tmp_path / "s")
    distilled(tiny, PAIRS, tmp_path / "s")
    assert folder_of(tmp_path / "s") == before


@pytest.mark.slow
def test_a_student_learns_hindi_from_sentences_without_references(tmp_path: Path) -> None:
    """Measured with these seeds: BLEU 65.1 of the teacher, 49.6 of the student (2026-11-19)."""

    def settings(**model: object) -> dict[str, Any]:
        size = {"layers": 2, "width": 64, "heads": 4, "inner": 128, "dropout": 0.1}
        training = {"steps": 900, "rate": 0.004, "warmup": 50, "batch_sentences": 64, "valid_every": 300}
        here = {"device": "cpu", "threads": 1, "precision": "fp32", "valid_pairs": 50, "checkpoint_every": 1000}
        model = {"family": "transformer", **size, **model}
        return {"text": {"kind": "word"}, "model": model, "training": {**training, **here}}

    def score(model: heedful.Translator, beam: int) -> float:
        test = hindi_pairs(200, split="test", max_words=6)
        done = model.translate([source for source, _ in test], beam=beam)
        return bleu([one.text for one in done], [[target] for _, target in test])

    pairs, out = hindi_pairs(3000, max_words=6), tmp_path / "teacher"
    teacher = heedful.train(pairs, out, settings=settings(), preset="none", verbose=False)
    text = [source for source, _ in hindi_pairs(3000, seed=2, max_words=6)]
    small = settings(cell="ssru", decoder_layers=1)
    student = distilled(out, None, tmp_path / "s", text=text, valid=pairs[:50], settings=small)
    assert score(teacher, 5) >= 55
    assert score(student, 1) >= 40


def test_another_teacher_is_noticed(tiny: Path, done: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    heedful.train(copies(), other, settings=SHORT, preset="none", verbose=False)
    with pytest.raises(ConfigError, match=r"distilled/translated: .*another model"):
        distilled(other, PAIRS, done)


def test_what_has_changed_is_noticed(tiny: Path, done: Path) -> None:
    with pytest.raises(DataError, match="not those that it was begun with"):
        distilled(tiny, PAIRS[:-20], done)
    with pytest.raises(ConfigError, match="beam was 5 and is 4"):
        distilled(tiny, PAIRS, done, beam=4)
    with pytest.raises(ConfigError, match="keep_original was False"):
        distilled(tiny, PAIRS, done, keep_original=True)
    with pytest.raises(ConfigError, match="preset was none"):
        distilled(tiny, PAIRS, done, preset="tiny")
    with pytest.raises(ConfigError, match=r"model\.width is 8"):
        distilled(tiny, PAIRS, done, settings={**STUDENT, "model": {**STUDENT["model"], "width": 16}})


def test_sentences_without_a_translation_are_dropped_and_counted(
    tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rows, "SPLIT_CHARACTERS", 7)  # longer ones are refused
    distilled(tiny, PAIRS, tmp_path / "s")
    translated = (tmp_path / "s" / "distilled" / "translated" / "00000.jsonl").read_text().splitlines()
    refused = [row["source"] for row in map(json.loads, translated) if row["error"]]
    assert refused
    assert all(len(text) > 7 for text in refused)
    kept = Distillation(tmp_path / "s").rows
    assert (kept.refused, kept.empty, kept.unknown, kept.sources) == (len(refused), 0, 0, len(translated))
    assert f"{len(refused)} could not be translated" in str(kept)
    assert {len(source) > 7 for source, _ in tsv(tmp_path / "s" / "distilled" / "pairs.tsv")} == {False}


def test_nothing_translated_is_an_error(tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rows, "SPLIT_CHARACTERS", 0)
    with pytest.raises(DataError, match="translated none"):
        distilled(tiny, PAIRS, tmp_path / "s")


def test_empty_and_unknown_translations_are_counted(tmp_path: Path) -> None:
    found: Sequence[Any] = [
        ("a", "A\tB\n C", None),
        ("b", "", None),
        ("c", " \u200b ", None),
        ("d", None, "too long"),
        ("e", "E <unk>", None),
    ]
    found = [*found, ("the token <unk>", "<unk>", None)]
    lines = [json.dumps({"source": x, "translation": y, "error": why}) + "\n" for x, y, why in found]
    (tmp_path / "0.jsonl").write_text("".join(lines), encoding="utf-8")
    counts = {"refused": 0, "empty": 0, "unknown": 0}
    pairs = [("a", "A B C"), ("the token <unk>", "<unk>")]
    assert list(module._translations([tmp_path / "0.jsonl"], counts)) == pairs
    assert counts == {"refused": 1, "empty": 2, "unknown": 1}


def test_text_is_translated_as_well_but_for_what_is_held_out(tiny: Path, done: Path, tmp_path: Path) -> None:
    held = tsv(done / "distilled" / "valid.tsv")[0][0]
    text = [held, PAIRS[0][0], "a a a a", "a a a a", "h h  h\u00a0h", ""]
    distilled(tiny, PAIRS, tmp_path / "s", text=text)
    sources = [source for source, _ in tsv(tmp_path / "s" / "distilled" / "pairs.tsv")]
    before = [source for source, _ in tsv(done / "distilled" / "pairs.tsv")]
    assert sources == [*before, "a a a a", "h h h h"]


def test_text_alone_is_validated_against_the_teacher(tiny: Path, tmp_path: Path) -> None:
    class Hearing(Reporter):
        def warn(self, message: str) -> None:
            warned.append(message)

    warned: list[str] = []
    file = tmp_path / "text.txt"
    file.write_text("".join(f"{source}\n" for source, _ in PAIRS), encoding="utf-8")
    run = Distillation(tmp_path / "s", asked(tiny), Sources(Inputs(()), (text_source(file),)))
    run.prepare(Hearing())
    run.translate()
    assert "there are no references" in warned[0]
    translator = heedful.load(tiny, "cpu", threads=1)
    valid, pairs = tsv(run.folder / "valid.tsv"), tsv(run.folder / "pairs.tsv")
    assert [target for _, target in valid] == [one.text for one in translator.translate([x for x, _ in valid], beam=5)]
    assert not {source for source, _ in valid} & {source for source, _ in pairs}
    assert run.train(Reporter()).reason == "steps"


@pytest.mark.parametrize(("pairs", "text"), [(PAIRS, None), (None, [source for source, _ in PAIRS])])
def test_validation_pairs_are_used_as_they_are_and_never_translated(
    tiny: Path, tmp_path: Path, pairs: Any, text: Any
) -> None:
    valid = [(PAIRS[0][0], "A REFERENCE"), ("a b a b a", "ANOTHER")]
    distilled(tiny, pairs, tmp_path / "s", text=text, valid=valid)
    assert tsv(tmp_path / "s" / "distilled" / "valid.tsv") == valid
    sources = [source for source, _ in tsv(tmp_path / "s" / "distilled" / "pairs.tsv")]
    assert PAIRS[0][0] not in sources
    assert len(sources) > 100


def test_original_pairs_are_kept_if_that_is_wanted(tiny: Path, done: Path, tmp_path: Path) -> None:
    file = write_pairs(tmp_path / "pairs.tsv", PAIRS)
    distilled(tiny, file, tmp_path / "s", keep_original=True)
    pairs, before = tsv(tmp_path / "s" / "distilled" / "pairs.tsv"), tsv(done / "distilled" / "pairs.tsv")
    assert pairs[: len(before)] == before
    original = pairs[len(before) :]
    assert set(original) == set(PAIRS) - set(tsv(tmp_path / "s" / "distilled" / "valid.tsv"))


def test_several_teachers_are_an_ensemble(tiny: Path, tmp_path: Path) -> None:
    distilled([tiny, tiny], PAIRS[:60], tmp_path / "s")
    assert about(tmp_path / "s")["notes"]["teacher"] == f"{tiny.name}, {tiny.name}"


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"preset": "huge"}, "unknown preset 'huge'"),
        ({"settings": {"model": {"family": "transformer", "width": 9}}}, "heads"),
        ({"settings": {"image": {"pixels": 64}}}, "section image"),
        ({"beam": 0}, "beam"),
        ({"translating": {"n_best": 3}}, "n_best cannot be set"),
        ({"translating": {"engine": "fast"}}, "engine"),
        ({"translating": {"speed": 3}}, "speed"),
        ({"teacher": []}, "no teacher"),
        ({"pairs": None}, "nothing to translate"),
        ({"beams": 3}, "beam"),
        ({"text": "-"}, "standard input"),
    ],
)
def test_wrong_settings_are_noticed_before_anything_is_written(
    tiny: Path, tmp_path: Path, more: dict[str, Any], message: str
) -> None:
    given = {"teacher": tiny, "pairs": PAIRS, **more}
    with pytest.raises(ConfigError, match=message):
        distilled(out=tmp_path / "s", **given)
    assert not (tmp_path / "s").exists()


def test_a_folder_with_something_else_is_not_touched(tiny: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="already has a model"):
        distilled(tiny, PAIRS, tiny)
    (tmp_path / "distilled").mkdir()
    with pytest.raises(ConfigError, match="not written by a distillation"):
        distilled(tiny, PAIRS, tmp_path)
    assert list((tmp_path / "distilled").iterdir()) == []
    with pytest.raises(ConfigError, match="no distillation to resume"):
        Distillation(tmp_path / "new")


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"format": 9}', '{"format": 1}', '{"format": 1, "teacher": 3}'])
def test_a_damaged_record_is_an_error(tmp_path: Path, content: str) -> None:
    (tmp_path / "distilled").mkdir()
    (tmp_path / "distilled" / "distill.json").write_text(content)
    with pytest.raises(DataError, match=r"distill\.json"):
        Distillation(tmp_path)


def test_a_teacher_of_the_other_direction_is_noticed(tmp_path: Path) -> None:
    greek = [(x, "".join(chr(ord("α") + ord(c) - ord("a")) if c != " " else c for c in x)) for x, _ in PAIRS]
    heedful.train(
        greek, tmp_path / "m", settings={**STUDENT, "training": {**STUDENT["training"], "steps": 2}}, preset="none"
    )
    with pytest.raises(DataError, match="other direction"):
        distilled(tmp_path / "m", [(y, x) for x, y in greek], tmp_path / "s")
    assert not (tmp_path / "s").exists()


def test_several_processes_are_told_what_to_do(tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(ConfigError, match="runs in one process"):
        distilled(tiny, PAIRS, tmp_path / "s")

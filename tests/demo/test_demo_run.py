"""A whole demo, small: what it leaves behind, that its numbers are those of other commands, whose folder it takes."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch

import heedful
from heedful.config import Config, read_recipe
from heedful.demo import FULL, DemoModel, Plan, TrainingStatus, run
from heedful.demo.training import EXAMPLES
from heedful.errors import ConfigError
from heedful.evaluation.run_report import RunReport

Run = Callable[..., tuple[int, str, str]]
SEED = 3
SMALL = Plan(
    pairs=400,
    valid=20,
    test=60,
    max_words=6,
    settings=(
        "text.kind=word",
        "model.dropout=0",
        "model.width=16",
        "training.decay=cosine",
        "training.batch_tokens=256",
        "training.warmup=5",
        "training.log_every=5",
    ),
    models=(
        DemoModel("fixed", "fixed context", ("model.family=fixed", "model.embedding=8", "training.rate=0.02"), 20),
        DemoModel("attention", "attention", ("model.family=rnn", "model.embedding=8", "training.rate=0.02"), 30),
        DemoModel(
            "transformer",
            "Transformer",
            ("model.family=transformer", "model.layers=2", "model.heads=2", "model.inner=16", "training.rate=0.02"),
            25,
        ),
    ),
    lengths=((5, 5), (6, 6), (30, 40)),  # of the last there is none
    validations=3,
)


class RecordingDisplay:
    """Records messages and steps; interrupts the demo at a message."""

    def __init__(self, stop_at: str = "") -> None:
        self.messages: list[str] = []
        self.steps: list[list[int]] = []
        self.stop_at = stop_at

    def log(self, message: str) -> None:
        self.messages.append(message)
        if self.stop_at and self.stop_at in message:
            raise KeyboardInterrupt

    def update(self, statuses: Sequence[TrainingStatus]) -> None:
        self.steps.append([status.step for status in statuses])


class Made(NamedTuple):
    out: Path
    report: RunReport
    display: RecordingDisplay
    plain: dict[str, Any]

    def corpus(self, split: str) -> list[list[str]]:
        """The columns of a file of the corpus."""
        text = (self.out / "corpus" / f"{split}.tsv").read_text(encoding="utf-8")
        return [line.split("\t") for line in text.splitlines()]


def make(out: Path, seed: int = SEED) -> Made:
    display, threads = RecordingDisplay(), torch.get_num_threads()
    try:
        report = run(SMALL, out, seed, display)
    finally:
        torch.set_num_threads(threads)
    return Made(out, report, display, json.loads((out / "demo.json").read_text(encoding="utf-8")))


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    """One demo for all tests of this file; they must not change its folder."""
    return make(tmp_path_factory.mktemp("demo") / "demo")


def contents(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


# ---- what is there afterwards


@pytest.mark.slow
def test_the_folder_holds_all_of_it(made: Made) -> None:
    names = {p.name for p in made.out.iterdir() if p.name != ".lock"}
    assert names == {
        "attention",
        "attention.log",
        "corpus",
        "demo.json",
        "fixed",
        "fixed.log",
        "recipe.toml",
        "report.html",
        "transformer",
        "transformer.log",
    }
    assert {p.name for p in (made.out / "corpus").iterdir()} == {"test.tsv", "train.tsv", "valid.tsv"}
    for key, steps in (("fixed", 20), ("attention", 30), ("transformer", 25)):
        assert heedful.load(made.out / key, "cpu").translate("मैं खाना खा रहा हूँ").source
        assert f"all steps done, after step {steps}" in (made.out / f"{key}.log").read_text(encoding="utf-8")


@pytest.mark.slow
def test_the_models_are_those_of_the_plan(made: Made) -> None:
    for model in SMALL.models:
        config = heedful.load(made.out / model.key, "cpu").config
        assert (config.model.width, config.text.kind) == (16, "word")
        assert (config.training.steps, config.training.seed) == (model.steps, SEED)
        assert (config.training.decay, config.training.rate) == ("cosine", 0.02)
        assert config.family == {"attention": "rnn"}.get(model.key, model.key)


@pytest.mark.slow
def test_it_says_what_it_does(made: Made) -> None:
    corpus, training, evaluation = made.display.messages
    assert "400 sentence pairs" in corpus
    assert "training 3 models" in training
    assert "test sentences" in evaluation
    assert made.display.steps[-1] == [20, 30, 25]


@pytest.mark.slow
@pytest.mark.parametrize("split", ["train", "valid", "test"])
def test_the_corpus_is_that_of_the_command(made: Made, heedful_cli: Run, split: str) -> None:
    count = {"train": SMALL.pairs, "valid": SMALL.valid, "test": SMALL.test}[split]
    options = ("--pairs", count, "--seed", SEED, "--split", split, "--max-words", SMALL.max_words, "--alignments")
    code, out, _ = heedful_cli("corpus", "hindi", *options)
    assert code == 0
    assert (made.out / "corpus" / f"{split}.tsv").read_bytes() == out.encode()


@pytest.mark.slow
def test_no_test_sentence_was_learned_from(made: Made) -> None:
    train, valid, test = (made.corpus(split) for split in ("train", "valid", "test"))
    assert (len(train), len(valid), len(test)) == (400, 20, 60)
    for column in (0, 1):
        learned = {row[column] for row in (*train, *valid)}
        assert not [row for row in test if row[column] in learned]


# ---- the numbers


@pytest.mark.slow
@pytest.mark.parametrize("key", ["fixed", "attention", "transformer"])
def test_scores_are_those_of_evaluate(made: Made, heedful_cli: Run, key: str) -> None:
    options = ("--json", "--device", "cpu")
    found = json.loads(heedful_cli("evaluate", made.out / key, made.out / "corpus" / "test.tsv", *options).out)
    mine = next(m for m in made.plain["models"] if m["key"] == key)
    rows = [{name: value for name, value in row.items() if name != "ter"} for row in found["by_length"]]
    assert mine["scores"] == {name: found[name] for name in mine["scores"]} | {"by_length": rows}
    assert len(rows) > 1
    # All sentences have up to 20 words, so the main number is that of all.
    assert made.plain["unseen_exact"][key] == pytest.approx(found["exact"])
    assert made.plain["unseen_pairs"] == found["pairs"] == 60


@pytest.mark.slow
def test_the_file_says_what_the_report_says(made: Made) -> None:
    plain, report = made.plain, made.report
    assert (
        [m["key"] for m in plain["models"]] == ["fixed", "attention", "transformer"] == [m.key for m in report.models]
    )
    for record, model in zip(plain["models"], report.models, strict=True):
        translator = heedful.load(made.out / model.key, "cpu")
        assert record["weights"] == model.weights == sum(p.numel() for p in translator.parts.model.parameters())
        assert (record["steps"], record["seconds"]) == (model.steps, model.seconds)
        assert [tuple(point) for point in record["curve"]] == list(model.curve)
        assert record["folder"] == str(made.out / model.key)
        assert (record["alignment"] is None) == (model.key == "fixed")
    for i in (1, 2):
        assert plain["models"][i]["alignment"]["error_rate"] == report.models[i].alignment.error_rate
    words = [len(row[0].split()) for row in made.corpus("train")]
    corpus = plain["corpus"]
    assert (corpus["pairs"], corpus["test_pairs"], corpus["seed"], corpus["longest"]) == (400, 60, SEED, max(words))
    assert (plain["seconds"], plain["memory_mb"]) == (report.seconds, report.memory)
    assert 0 < max(m["seconds"] for m in plain["models"]) < plain["seconds"]
    if sys.platform == "linux":
        assert 100 < plain["memory_mb"] < 20_000


@pytest.mark.slow
def test_curves_and_steps_are_those_of_the_runs(made: Made) -> None:
    for record in made.plain["models"]:
        text = (made.out / record["key"] / "metrics.jsonl").read_text(encoding="utf-8")
        lines = [json.loads(line) for line in text.splitlines()]
        valid = [(line["valid_bleu"], line["valid_loss"]) for line in lines if "valid_bleu" in line]
        assert [(bleu, loss) for _, bleu, loss in record["curve"]] == valid
        assert len(valid) == SMALL.validations
        assert record["steps"] == lines[-1]["step"]
        seconds = [point[0] for point in record["curve"]]
        assert seconds == sorted(seconds)
        assert seconds[-1] <= record["seconds"]


@pytest.mark.slow
@pytest.mark.parametrize("key", ["attention", "transformer"])
def test_the_links_are_measured_on_the_test_pairs(made: Made, key: str) -> None:
    from heedful.alignment import align_trace, parse, score
    from heedful.trace import Readout

    rows = made.corpus("test")
    traces = heedful.load(made.out / key, "cpu").reread([r[0] for r in rows], [r[1] for r in rows])
    alignment = next(m.alignment for m in made.report.models if m.key == key)
    assert alignment is not None
    threshold = float(alignment.rule.partition("at least ")[2].partition("%")[0] or 100) / 100
    assert ("the mean of all layers and heads" in alignment.rule) == (key == "transformer")
    found = score([align_trace(t, Readout(threshold=threshold)).pairs for t in traces], [parse(r[2]) for r in rows])
    assert alignment.pairs == 60
    assert (alignment.error_rate, alignment.precision, alignment.recall) == pytest.approx(
        (found.error_rate, found.precision, found.recall), abs=0.01
    )


# ---- the sentences that are shown


@pytest.mark.slow
def test_the_famous_sentences_come_first(made: Made) -> None:
    shown = made.report.examples
    assert [(e.source, e.reference) for e in shown[:3]] == [(x, y) for x, y, _ in EXAMPLES]
    for example, (_, _, gold) in zip(shown, EXAMPLES, strict=False):
        assert " ".join(f"{i}-{j}" for i, j in sorted(example.gold)) == gold


@pytest.mark.slow
def test_then_the_first_of_each_length(made: Made) -> None:
    rows = made.corpus("test")
    expected = [next(r for r in rows if len(r[0].split()) == n) for n in (5, 6)]
    shown = made.report.examples[3:]
    assert [[e.source, e.reference] for e in shown] == [r[:2] for r in expected]
    for example, row in zip(shown, expected, strict=True):
        assert example.gold == frozenset(tuple(map(int, link.split("-"))) for link in row[2].split())


@pytest.mark.slow
def test_seen_is_what_was_in_the_training_data(made: Made) -> None:
    learned = {row[0] for row in made.corpus("train")}
    assert [e.seen for e in made.report.examples] == [e.source in learned for e in made.report.examples]
    assert [e["seen"] for e in made.plain["examples"]] == [e.seen for e in made.report.examples]


@pytest.mark.slow
def test_outputs_are_those_of_the_models(made: Made) -> None:
    for model in SMALL.models:
        translator = heedful.load(made.out / model.key, "cpu")
        again = [t.text for t in translator.translate([e.source for e in made.report.examples])]
        assert [e.outputs[model.key] for e in made.report.examples] == again
        assert [e["outputs"][model.key] for e in made.plain["examples"]] == again
    for example in made.report.examples:
        assert example.traced == "attention"
        assert example.trace.target.text == example.outputs["attention"]
        assert example.trace.weights is not None
        assert set(example.more) == {"transformer"}
        assert example.more["transformer"].target.text == example.outputs["transformer"]
        assert example.more["transformer"].weights is not None


@pytest.mark.slow
def test_the_page_is_made_of_it(made: Made) -> None:
    page = (made.out / "report.html").read_text(encoding="utf-8")
    assert "<html" in page
    assert all(e.source in page for e in made.report.examples)
    assert all(f"{m.weights:,}" in page for m in made.report.models)


@pytest.mark.slow
def test_commands_to_try_can_be_tried(made: Made, heedful_cli: Run) -> None:
    import shlex

    commands = [shlex.split(command) for _, command in made.report.next]
    assert [c[0] for c in commands] == ["heedful"] * len(commands)
    for command in commands:
        if command[1] in ("translate", "corpus"):
            code, out, _ = heedful_cli(*command[1:])
            assert code == 0
            assert out
        else:
            assert command[1] == "train"


# ---- whose folder it is


@pytest.mark.slow
def test_an_earlier_demo_is_moved_aside(made: Made, tmp_path: Path) -> None:
    out = tmp_path / "again"
    shutil.copytree(made.out, out)
    before = contents(out)
    display = RecordingDisplay(stop_at="400 sentence pairs")
    with pytest.raises(KeyboardInterrupt):
        run(SMALL, out, SEED, display)
    assert str(tmp_path / "again.1") in display.messages[0]
    assert contents(tmp_path / "again.1") == before
    assert not (out / "report.html").exists()
    # What a demo that was stopped has left gives way, too.
    with pytest.raises(KeyboardInterrupt):
        run(SMALL, out, SEED, display)
    assert any(str(tmp_path / "again.2") in message for message in display.messages)
    assert contents(tmp_path / "again.1") == before
    assert sorted(p.name for p in tmp_path.iterdir()) == ["again", "again.1", "again.2"]


def test_an_empty_folder_is_taken(tmp_path: Path) -> None:
    display = RecordingDisplay(stop_at="400 sentence pairs")
    with pytest.raises(KeyboardInterrupt):
        run(SMALL, tmp_path, SEED, display)
    assert len(display.messages) == 1
    assert (tmp_path / "demo.json").exists()


def test_a_folder_of_somebody_else_is_refused_and_left_alone(tmp_path: Path) -> None:
    (tmp_path / "letters").mkdir()
    (tmp_path / "letters" / "a.txt").write_text("mine")
    with pytest.raises(ConfigError, match="folder is not empty.*choose another"):
        run(SMALL, tmp_path, SEED, RecordingDisplay())
    assert contents(tmp_path) == {"letters/a.txt": b"mine"}


def test_a_file_is_refused_and_left_alone(tmp_path: Path) -> None:
    (tmp_path / "demo").write_text("mine")
    with pytest.raises(ConfigError, match="this is a file, expected a folder"):
        run(SMALL, tmp_path / "demo", SEED, RecordingDisplay())
    assert contents(tmp_path) == {"demo": b"mine"}


def test_the_folder_one_stands_in_is_not_moved_away(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "demo" / "inner").mkdir(parents=True)
    (tmp_path / "demo" / "demo.json").write_text("{}")
    for here, out in ((".", "."), ("inner", "..")):
        monkeypatch.chdir(tmp_path / "demo" / here)
        with pytest.raises(ConfigError, match="choose another"):
            run(SMALL, Path(out), SEED, RecordingDisplay())
    assert contents(tmp_path) == {"demo/demo.json": b"{}"}


# ---- the rest


def test_torch_is_not_loaded_before_the_models_are_trained(environment: dict[str, str]) -> None:
    """The memory is that of the models: the process that watches them takes as little as it can."""
    script = "import sys, heedful.demo, heedful.cli.demo; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, env=environment, check=True)
    assert done.stdout.strip() == "False"


def test_the_models_of_the_full_demo_are_of_the_same_size() -> None:
    """As many weights to 10%: it is the attention that makes the difference."""
    from heedful.config import Config, settings
    from heedful.models import build

    sizes = []
    for model in FULL.models:
        config = Config.build(settings([*FULL.settings, *model.settings]))
        with torch.device("meta"):
            sizes.append(sum(p.numel() for p in build(config.model, 900, 700).parameters()))
    assert max(sizes) <= 1.1 * min(sizes)


@pytest.mark.slow
def test_the_same_seed_gives_the_same_demo(made: Made, tmp_path: Path) -> None:
    again, other = make(tmp_path / "again"), make(tmp_path / "other", SEED + 1)
    for key in ("fixed", "attention", "transformer"):
        weights = [(m.out / key / "model.safetensors").read_bytes() for m in (made, again, other)]
        assert weights[0] == weights[1] != weights[2]
    assert again.plain["examples"] == made.plain["examples"]
    assert [m["scores"] for m in again.plain["models"]] == [m["scores"] for m in made.plain["models"]]
    assert replace(again.report.models[1], seconds=0, curve=(), folder="") == replace(
        made.report.models[1], seconds=0, curve=(), folder=""
    )


@pytest.mark.slow
def test_the_recipe_is_the_attention_models(made: Made) -> None:
    wanted = Config.build(read_recipe(made.out / "recipe.toml"))
    found = json.loads((made.out / "attention" / "config.json").read_text(encoding="utf-8"))["config"]
    assert wanted.plain()["model"] == found["model"]
    assert {**wanted.plain()["text"], "size": found["text"]["size"]} == found["text"]  # which was chosen from the data
    assert wanted.training.steps == found["training"]["steps"]
    assert wanted.training.rate == found["training"]["rate"]

"""Rates of a model's alarms for wrong and right translations: measured, saved, shown and used."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from conftest import TINY, copies, write_pairs
from random_translators import random_folder, random_translator

import heedful
from heedful.errors import HeedfulError
from heedful.interop.folder import write_model, write_readout
from heedful.metrics import extract_stats
from heedful.trace.alarms import KINDS, AlarmRates, alarms
from heedful.trace.readout import Readout
from heedful.translator.select_readout import FEWEST, measure_alarms

Run = Callable[..., Any]
SETTINGS = {**TINY, "training": {**TINY["training"], "steps": 10, "valid_every": 10, "checkpoint_every": 10}}
PAIRS = [pair for pair in copies(200, seed=5) if len(pair[0].split()) > 1][:100]
CHANCE = AlarmRates(40, 120, tuple((kind, 20, 60) for kind in KINDS))


@pytest.mark.parametrize("name", ["rnn", "transformer"])
def test_the_rates_are_those_of_the_translations(name: str) -> None:
    translator = random_translator(name)
    rates = measure_alarms(translator, PAIRS)
    assert rates is not None
    done = translator.translate([source for source, _ in PAIRS])
    chrf = extract_stats([one.text for one in done], [target for _, target in PAIRS], ("chrf",)).sentences("chrf")
    worst = sorted(range(100), key=lambda i: chrf[i])[:25]
    wrong = {i for i in worst if done[i].text != PAIRS[i][1]}
    assert (rates.wrong, rates.right) == (len(wrong), 100 - len(wrong))
    for kind, on_wrong, on_right in rates.raised:
        raised = {i for i, one in enumerate(done) if kind in {alarm.kind for alarm in alarms(one.trace, every=True)}}
        assert (on_wrong, on_right) == (len(raised & wrong), len(raised - wrong))
    assert sum(on_wrong + on_right for _, on_wrong, on_right in rates.raised) > 0


def test_what_is_right_is_never_called_wrong(tiny: Path) -> None:
    """Of a model that is nearly always right, there are not enough wrong translations to judge by."""
    translator = heedful.load(tiny, "cpu")
    written = translator.translate([source for source, _ in PAIRS])
    rates = measure_alarms(translator, [(one.source, one.text) for one in written])
    assert rates is not None
    assert (rates.wrong, rates.right) == (0, 100)
    assert all(rates.shows(kind) for kind in KINDS)


def test_too_few_pairs_and_models_without_attention_have_none() -> None:
    assert measure_alarms(random_translator("rnn"), PAIRS[: FEWEST - 1]) is None
    assert measure_alarms(random_translator("fixed"), PAIRS) is None


def test_another_readout_has_other_rates() -> None:
    translator = random_translator("transformer")
    assert measure_alarms(translator, PAIRS, Readout(1, (2,))) != measure_alarms(translator, PAIRS)
    assert translator.readout == Readout.usual(translator.config)


def test_heedful_readout_saves_them_and_info_says_them(heedful_cli: Run, tmp_path: Path) -> None:
    folder, pairs = random_folder(tmp_path / "m", "rnn"), write_pairs(tmp_path / "pairs.tsv", PAIRS)
    assert "not measured" in heedful_cli("info", folder).out
    dry = heedful_cli("readout", folder, pairs, "--dry-run", "--json")
    assert not (folder / "readout.json").exists()
    rates = AlarmRates.build(json.loads(dry.out)["alarms"])
    done = heedful_cli("readout", folder, pairs)
    assert done.code == 0
    translator = heedful.load(folder, "cpu")
    assert translator.readout.alarms == rates == measure_alarms(translator, PAIRS)
    info = heedful_cli("info", folder).out
    assert f"{rates.wrong} wrong and {rates.right} right" in info
    for line in rates.lines():
        assert line in info
        assert line in done.out
    # And they are used: in translations, and in what is printed of them.
    write_readout(folder, replace(translator.readout, alarms=CHANCE))
    chance = heedful.load(folder, "cpu")
    shown = [alarms(chance.translate(source).trace, every=True) for source, _ in PAIRS[:20]]
    assert any(shown)
    assert not any(chance.translate(source).alarms for source, _ in PAIRS[:20])


def test_rates_alone_are_no_readout_that_was_chosen(heedful_cli: Run, tmp_path: Path) -> None:
    """The usual read-out with measured alarms: nothing has to be better than it, and nothing is set aside for it."""
    folder, pairs = random_folder(tmp_path / "m", "rnn"), write_pairs(tmp_path / "pairs.tsv", PAIRS)
    parts = heedful.load(folder, "cpu").parts
    usual = Readout.usual(parts.config)
    write_readout(folder, replace(usual, alarms=CHANCE))
    assert "default" in heedful_cli("info", folder).out
    assert "up to now" not in heedful_cli("readout", folder, pairs, "--dry-run").out
    write_model(folder, random_translator("rnn", seed=2).parts)  # other weights
    assert not (folder / "readout.json").exists()
    assert not (folder / "readout.old.json").exists()
    # One that was chosen is set aside.
    write_readout(folder, Readout(1, (1,), chosen="by hand"))
    write_model(folder, parts)
    assert (folder / "readout.old.json").exists()


def test_the_end_of_training_measures_them(tmp_path: Path) -> None:
    heedful.train(copies(100), tmp_path / "m", valid=PAIRS, settings=SETTINGS)
    translator = heedful.load(tmp_path / "m", "cpu")
    rates = translator.readout.alarms
    assert rates is not None
    assert rates == measure_alarms(translator, PAIRS)
    assert translator.readout.is_usual(translator.config)
    # A read-out that was chosen for these weights stays, when the same run ends again.
    chosen = Readout(1, (1,), chosen="by hand")
    write_readout(tmp_path / "m", chosen)
    heedful.train(copies(100), tmp_path / "m", valid=PAIRS, settings=SETTINGS, resume=True)
    assert heedful.load(tmp_path / "m", "cpu").readout == chosen
    # Too few pairs to measure by: no file.
    heedful.train(copies(100), tmp_path / "few", valid=PAIRS[:20], settings=SETTINGS)
    assert not (tmp_path / "few" / "readout.json").exists()


def test_training_that_cannot_measure_them_still_ends_with_its_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise HeedfulError("out of memory")

    monkeypatch.setattr("heedful.translator.train.measure_alarms", fail)
    translator = heedful.train(copies(100), tmp_path / "m", valid=PAIRS, settings=SETTINGS)
    assert translator.readout.alarms is None
    assert (tmp_path / "m" / "config.json").exists()


def test_several_models_together_are_not_measured(tmp_path: Path) -> None:
    folders = [random_folder(tmp_path / str(seed), "rnn", seed=seed) for seed in (1, 2)]
    for folder in folders:
        usual = Readout.usual(heedful.load(folder, "cpu").config)
        write_readout(folder, replace(usual, alarms=CHANCE))
    assert heedful.load(folders[0], "cpu").readout.alarms == CHANCE
    assert heedful.load(folders, "cpu").readout.alarms is None

"""Keyword arguments of a translator, its device and its threads."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import heedful
from heedful.errors import ArgumentError, ConfigError
from heedful.models.device import ThreadTimes
from heedful.translator import threads as module


@pytest.fixture(scope="module")
def translator(tiny: Path) -> heedful.Translator:
    return heedful.load(tiny, "cpu")


def test_settings_of_decoding_by_name(translator: heedful.Translator) -> None:
    by_name = translator.translate("a b c", beam=5, n_best=3)
    assert len(by_name.n_best) == 3
    assert [one.text for one in by_name.n_best] == [
        one.text for one in translator.translate("a b c", heedful.Decoding(beam=5, n_best=3)).n_best
    ]
    assert len(translator.translate(["a b"], heedful.Decoding(beam=5), n_best=2)[0].n_best) == 2
    assert len(list(translator.stream("a b c", max_length=1))) <= 2


@pytest.mark.parametrize(
    ("wrong", "guess"), [("beams", "beam"), ("nbest", "n_best"), ("copy_unknowns", "copy_unknown")]
)
def test_an_unknown_keyword_gets_a_guess(translator: heedful.Translator, wrong: str, guess: str) -> None:
    with pytest.raises(ArgumentError, match=f"'{wrong}'.*'{guess}'") as caught:
        translator.translate("a", **{wrong: 2})  # type: ignore[call-overload]
    assert isinstance(caught.value, TypeError)
    assert isinstance(caught.value, ConfigError)
    with pytest.raises(ArgumentError, match="'beams'.*'beam'"):
        translator.stream("a", beams=2)  # type: ignore[call-arg]


def test_a_keyword_without_a_likeness_lists_them_all(translator: heedful.Translator) -> None:
    with pytest.raises(ArgumentError, match="'zzzz'; choose from alpha, batch_tokens, beam"):
        translator.translate("a", zzzz=1)  # type: ignore[call-overload]


def test_to_a_device(translator: heedful.Translator) -> None:
    assert translator.to("cpu") is translator
    assert translator.to(torch.device("cpu")).device.type == "cpu"
    with pytest.raises(ConfigError, match="cpu"):
        translator.to("gpu")
    if not torch.cuda.is_available():
        with pytest.raises(ConfigError, match="cuda"):
            translator.to("cuda")
    assert translator.translate("a b").text


def test_threads_of_a_translator(tiny: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    used: list[int] = []
    before = torch.get_num_threads()
    loaded = heedful.load(tiny, "cpu", threads=before + 1)
    monkeypatch.setattr(torch, "set_num_threads", used.append)
    monkeypatch.setattr(torch, "get_num_threads", lambda: used[-1] if used else before)
    loaded.translate("a b")
    assert used == [before + 1, before]
    with pytest.raises(ConfigError, match="-1"):
        heedful.load(tiny, "cpu", threads=-1)


def test_threads_are_measured_for_many_texts_only(tiny: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    loaded = heedful.load(tiny, "cpu")
    measured: list[int] = []

    def fastest(work: object, rounds: int) -> ThreadTimes:
        assert callable(work)
        work()
        measured.append(rounds)
        return ThreadTimes(2, {1: 0.2, 2: 0.1})

    monkeypatch.setattr(module, "fastest_threads", fastest)
    assert loaded.choose_threads(["a b c"] * 5000) == 0  # OMP_NUM_THREADS is set
    monkeypatch.setattr(module, "may_choose", lambda: True)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 2)
    assert loaded.choose_threads(["a b c"]) == 1  # a small model and little to do
    assert not measured
    monkeypatch.setattr(module, "LARGE", 10)
    assert loaded.choose_threads(["a b c"]) == 2
    assert not measured
    assert loaded.choose_threads(["a b c"] * 1000, beam=2) == 2
    assert loaded.threads == 2
    assert measured == [1]


def test_a_service_measures_half_of_the_threads(tiny: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    loaded = heedful.load(tiny, "cpu")
    number, tried = [8], []

    def fastest(work: object, rounds: int) -> ThreadTimes:
        tried.append(torch.get_num_threads())
        return ThreadTimes(2, {1: 0.2, 2: 0.1})

    monkeypatch.setattr(module, "fastest_threads", fastest)
    monkeypatch.setattr(torch, "get_num_threads", lambda: number[-1])
    monkeypatch.setattr(torch, "set_num_threads", number.append)
    assert module.measured_serving_threads(loaded, "a b") == 0  # OMP_NUM_THREADS is set
    monkeypatch.setattr(module, "may_choose", lambda: True)
    assert module.measured_serving_threads(loaded, "a b") == 4  # two for reading, two for writing
    assert tried == [4]
    assert number[-1] == 8
    number.append(2)
    assert module.measured_serving_threads(loaded, "a b") == 0  # one for each: nothing to choose


@pytest.mark.parametrize(("wrong", "guess"), [("thread", "threads"), ("num_threads", "threads"), ("devices", "device")])
def test_load_guesses(tiny: Path, wrong: str, guess: str) -> None:
    with pytest.raises(ArgumentError, match=f"load: unknown argument '{wrong}'.*'{guess}'"):
        heedful.load(tiny, **{wrong: 2})  # type: ignore[call-arg]


def test_a_client_guesses() -> None:
    with pytest.raises(ArgumentError, match=r"Client: unknown argument 'tokn'.*'token'"):
        heedful.Client("http://localhost:1", tokn="x")  # type: ignore[call-arg]
    with heedful.Client("http://localhost:1", patience=0) as client:
        with pytest.raises(ArgumentError, match=r"translate: unknown argument 'bem'.*'beam'"):
            client.translate("a", bem=2)  # type: ignore[call-overload]
        with pytest.raises(ArgumentError, match=r"align: unknown argument 'modle'.*'model'"):
            client.align([("a", "b")], modle="m")  # type: ignore[call-arg]
        with pytest.raises(ArgumentError, match=r"stream: unknown argument 'prefx'.*'prefix'"):
            client.stream("a", prefx="b")  # type: ignore[call-arg]


def test_a_gpu_is_called_cuda(tiny: Path) -> None:
    with pytest.raises(ConfigError, match="'gpu'.*Did you mean 'cuda'"):
        heedful.load(tiny, "gpu")

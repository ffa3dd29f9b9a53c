"""Names on the hub: fetched by its own package, which stands here for one without a network."""

from __future__ import annotations

import builtins
import re
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

import heedful
from heedful.errors import ModelError
from heedful.interop import fetch, open_parts

hub = pytest.importorskip("huggingface_hub")
errors = pytest.importorskip("huggingface_hub.errors")
NAME = "hf:Helsinki-NLP/opus-mt-hi-en"


class Hub:
    """A hub with one repository, which has some files."""

    def __init__(self, folder: Path, *files: str) -> None:
        self.folder, self.files = folder, files
        self.calls: list[tuple[str, str | None, list[str]]] = []

    def __call__(self, repo_id: str, *, revision: str | None, allow_patterns: list[str]) -> str:
        self.calls.append((repo_id, revision, allow_patterns))
        for name in set(self.files) & set(allow_patterns):
            (self.folder / name).write_text("{}")
        return str(self.folder)


@pytest.fixture
def put(monkeypatch: pytest.MonkeyPatch) -> Callable[[Any], None]:
    return lambda function: monkeypatch.setattr(hub, "snapshot_download", function)


def test_only_the_files_of_a_model(put: Callable[[Any], None], tmp_path: Path) -> None:
    there = Hub(tmp_path, "config.json", "model.safetensors", "pytorch_model.bin", "tf_model.h5", "source.spm")
    put(there)
    assert fetch(NAME) == tmp_path
    assert {p.name for p in tmp_path.iterdir()} == {"config.json", "model.safetensors", "source.spm"}
    assert [call[:2] for call in there.calls] == [("Helsinki-NLP/opus-mt-hi-en", None)]


def test_a_pickle_only_when_there_is_nothing_better(put: Callable[[Any], None], tmp_path: Path) -> None:
    put(Hub(tmp_path, "config.json", "pytorch_model.bin", "rust_model.ot"))
    fetch(NAME)
    assert {p.name for p in tmp_path.iterdir()} == {"config.json", "pytorch_model.bin"}


def test_a_revision(put: Callable[[Any], None], tmp_path: Path) -> None:
    there = Hub(tmp_path, "config.json", "model.safetensors")
    put(there)
    fetch(f"{NAME}@refs/pr/3")
    assert there.calls[0][:2] == ("Helsinki-NLP/opus-mt-hi-en", "refs/pr/3")


def test_a_name_without_an_organisation(put: Callable[[Any], None], tmp_path: Path) -> None:
    there = Hub(tmp_path, "config.json", "model.safetensors")
    put(there)
    fetch("hf:opus@v1")
    assert there.calls[0][:2] == ("opus", "v1")


def test_a_repository_of_something_else(put: Callable[[Any], None], tmp_path: Path) -> None:
    put(Hub(tmp_path, "model.safetensors"))
    with pytest.raises(ModelError, match=r"^hf:.*there is no config.json in this repository"):
        fetch(NAME)


@pytest.mark.parametrize(
    "name", ["hf:", "hf:@main", "hf:a/b/c", "hf:../..x/y z", "hf:a/b@", "hf:a/b@c d", "hf:é/b", "hf:/b"]
)
def test_bad_names(name: str) -> None:
    with pytest.raises(ModelError, match=r"is not the name of a model on the hub; expected hf:ORG/NAME or "):
        fetch(name)


@pytest.mark.parametrize(
    "name",
    [
        *(f"hf:a/b@{r}" for r in ("..", "../..", "x/../..", "/etc", ".", "a//b", "a/", "-x", "a\\b", "a\0b", "a/./b")),
        *("hf:../b", "hf:a/..", "hf:./b", "hf:-a/b", "hf:a/b@x\n", "hf:a/b@refs/../../../../tmp/evil"),
    ],
)
def test_names_and_revisions_stay_inside_the_cache(name: str, put: Callable[[Any], None]) -> None:
    put(lambda *_, **__: pytest.fail("the hub's package was asked"))
    with pytest.raises(ModelError, match=r"is not the name of a model on the hub; expected hf:ORG/NAME or "):
        fetch(name)


def test_a_name_that_the_hub_refuses() -> None:
    with pytest.raises(ModelError, match="this is not a name on the hub"):
        fetch("hf:a/b--c")


RESPONSE = SimpleNamespace(headers={}, request=None, status_code=500)


@pytest.mark.parametrize(
    ("error", "says"),
    [
        (errors.RepositoryNotFoundError("x", response=RESPONSE), "there is no such model on huggingface.co"),
        (errors.GatedRepoError("x", response=RESPONSE), "access must be requested"),
        (errors.RevisionNotFoundError("x", response=RESPONSE), "it has no such revision"),
        (
            errors.HfHubHTTPError("500 Server Error\nmore", response=RESPONSE),
            "huggingface.co answered: 500 Server Error$",
        ),
        (errors.LocalEntryNotFoundError("x"), "huggingface.co cannot be reached, and the model is not in the cache"),
        (errors.OfflineModeIsEnabled("x"), "HF_HUB_OFFLINE is set"),
        (ConnectionError("no route\nto host"), "no route; is huggingface.co reachable"),
        (OSError(28, "No space left on device"), "No space left on device"),
        (RuntimeError("client closed"), r"\(RuntimeError: client closed\)"),
    ],
)
def test_what_may_go_wrong(put: Callable[[Any], None], error: Exception, says: str) -> None:
    def fail(*_: object, **__: object) -> str:
        raise error

    put(fail)
    with pytest.raises(ModelError, match=f"^{NAME}: cannot be downloaded.*{says}"):
        fetch(NAME)
    with pytest.raises(ModelError, match="cannot be downloaded"):
        heedful.load(NAME, "cpu")


def test_without_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = builtins.__import__

    def without(name: str, *rest: Any) -> Any:
        if name.startswith("huggingface_hub"):
            raise ImportError(name)
        return plain(name, *rest)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(ModelError, match=r"huggingface_hub is needed .*\bpip install '[a-z.]+\[opus\]'"):
        fetch(NAME)


def test_a_bare_name_is_a_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ModelError, match="there is no such model folder"):
        heedful.load("Helsinki-NLP/opus-mt-hi-en")


def test_a_folder_of_models_names_them(tmp_path: Path) -> None:
    """As an archive is unpacked: the models are one level below."""
    (tmp_path / "models" / "one").mkdir(parents=True)
    (tmp_path / "models" / "one" / "config.json").write_text('{"model_type": "marian"}')
    with pytest.raises(ModelError, match=re.escape(str(tmp_path / "models" / "one"))):
        open_parts(tmp_path / "models", torch.device("cpu"))

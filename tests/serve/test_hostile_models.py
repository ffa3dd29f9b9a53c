"""Models that nobody should serve: names that are not text, tokenizers that panic, numbers that are none."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("fastapi")

from random_translators import random_folder, random_parts
from running import running

from heedful.errors import ConfigError
from heedful.interop.folder import about, write_model
from heedful.serve.http.models import ModelRegistry, model_name

BAD = os.fsdecode(b"bad\xff\x1b")


def test_a_folder_with_an_undecodable_name_needs_another_one(tmp_path: Path) -> None:
    random_folder(tmp_path / BAD, "rnn")
    with pytest.raises(ConfigError, match="NAME=FOLDER") as caught:
        ModelRegistry.open([str(tmp_path / BAD)], "cpu")
    str(caught.value).encode()  # it can be printed
    assert r"bad\udcff\x1b" in str(caught.value)
    registry = ModelRegistry.open([f"good={tmp_path / BAD}"], "cpu")
    assert [card.name for card in registry.cards()] == ["good"]
    with running(registry.models, folders=registry.folders) as service:
        assert [one["name"] for one in service.client.models()] == ["good"]
        assert service.client.translate("a b")["text"] == registry.models["good"].translate("a b").text


def test_usual_names_are_names() -> None:
    assert model_name("runs/मॉ\u200dडल")[0] == "मॉ\u200dडल"


def test_a_name_in_the_notes_of_a_model_may_be_undecodable(tmp_path: Path) -> None:
    parts = random_parts("rnn")
    write_model(tmp_path / "m", replace(parts, notes={"init": BAD}))
    assert about(tmp_path / "m")["notes"]["init"] == BAD
    json.loads((tmp_path / "m" / "config.json").read_text(encoding="utf-8"))

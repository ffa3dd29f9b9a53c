from __future__ import annotations

import json
import os
import shutil
from dataclasses import replace
from hashlib import sha256
from pathlib import Path

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import heedful
from heedful.errors import HeedfulError, ModelError
from heedful.interop.folder import CONFIG, WEIGHTS, checksum, pack, read_model, unpack, write_model, write_readout
from heedful.trace.readout import Readout

FILES = [CONFIG, WEIGHTS, "source.tokenizer.json", "target.tokenizer.json"]


@pytest.fixture
def model(tiny: Path, tmp_path: Path) -> Path:
    out = tmp_path / "m"
    out.mkdir()
    for name in FILES:
        shutil.copy(tiny / name, out / name)
    return out


def edit(path: Path, **changes: object) -> None:
    head = json.loads((path / CONFIG).read_text(encoding="utf-8"))
    write(path, {**head, **changes})


def write(path: Path, head: dict[str, object]) -> None:
    """Write a config with the checksum that it should have: what somebody who tampers would do."""
    (path / CONFIG).write_text(json.dumps({**head, "checksum": checksum(head)}), encoding="utf-8")


def seal(path: Path) -> None:
    """Write the checksums of the files as they are now: what somebody who tampers would do."""
    contents = {name: (path / name).read_bytes() for name in FILES if name != CONFIG}
    edit(path, files={n: {"bytes": len(c), "sha256": sha256(c).hexdigest()} for n, c in contents.items()})


def test_what_is_written_is_read_again(model: Path, tmp_path: Path) -> None:
    parts = read_model(model)
    write_model(tmp_path / "again", parts)
    again = read_model(tmp_path / "again")
    assert again.config == parts.config
    assert again.source.dump() == parts.source.dump()
    for (name, a), (_, b) in zip(parts.model.state_dict().items(), again.model.state_dict().items(), strict=True):
        assert torch.equal(a, b), name


def test_a_joint_vocabulary_is_one_file(tmp_path: Path) -> None:
    from small_runs import train_tiny

    out = train_tiny(tmp_path / "joint", text={"joint": True}, training={"steps": 2})
    assert (out / "tokenizer.json").exists()
    assert not (out / "source.tokenizer.json").exists()
    parts = read_model(out)
    assert parts.source is parts.target


def test_no_such_folder(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="there is no such model folder"):
        heedful.load(tmp_path / "nowhere")


def test_not_a_model(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"has no model \(there is no config.json\)"):
        heedful.load(tmp_path)


def test_an_unfinished_run_says_how_to_go_on(tmp_path: Path) -> None:
    (tmp_path / "checkpoints").mkdir()
    with pytest.raises(ModelError, match="its training was not finished: resume it"):
        heedful.load(tmp_path)


def test_another_programs_config(tmp_path: Path) -> None:
    (tmp_path / CONFIG).write_text('{"architectures": ["MarianMTModel"]}')
    with pytest.raises(ModelError, match="not the config of a heedful model"):
        heedful.load(tmp_path)


def test_a_newer_format(model: Path) -> None:
    edit(model, format=2, heedful="9.9")
    with pytest.raises(ModelError, match=r"format 2 by heedful 9\.9; .* reads format 1\. Upgrade"):
        heedful.load(model)


@pytest.mark.parametrize("name", FILES[1:])
def test_a_missing_file(model: Path, name: str) -> None:
    (model / name).unlink()
    with pytest.raises(ModelError, match="the model is incomplete"):
        heedful.load(model)


@pytest.mark.parametrize("name", FILES[1:])
def test_a_truncated_file(model: Path, name: str) -> None:
    content = (model / name).read_bytes()
    (model / name).write_bytes(content[: len(content) // 2])
    with pytest.raises(ModelError, match="truncated or changed"):
        heedful.load(model)


@pytest.mark.parametrize("name", FILES[1:])
def test_one_changed_bit(model: Path, name: str) -> None:
    content = bytearray((model / name).read_bytes())
    content[-9] ^= 1
    (model / name).write_bytes(content)
    with pytest.raises(ModelError, match="damaged or changed"):
        heedful.load(model)


def test_a_file_outside_the_folder_is_not_opened(model: Path) -> None:
    edit(model, files={"../secret": {"bytes": 1, "sha256": ""}})
    with pytest.raises(ModelError, match="is not a file of a model"):
        heedful.load(model)


@pytest.mark.parametrize("name", ["a\0b", "\ud800", "", "/etc/passwd", "model.bin"])
def test_only_known_files_are_opened(model: Path, name: str) -> None:
    edit(model, files={name: {"bytes": 1, "sha256": ""}})
    with pytest.raises(ModelError, match="is not a file of a model"):
        heedful.load(model)


@pytest.mark.parametrize("notes", [{"pairs": "many"}, {"step": [1]}, {"validation": 3}, {"validation": {"bleu": "x"}}])
def test_notes_that_nobody_wrote(model: Path, notes: dict[str, object]) -> None:
    edit(model, notes=notes)
    with pytest.raises(ModelError, match="notes"):
        heedful.load(model)


def test_a_pipe_is_not_waited_for_and_a_device_not_read(model: Path) -> None:
    (model / WEIGHTS).unlink()
    os.mkfifo(model / WEIGHTS)
    with pytest.raises(ModelError, match="expected a plain file"):
        heedful.load(model)
    (model / WEIGHTS).unlink()
    (model / WEIGHTS).symlink_to("/dev/zero")
    with pytest.raises(ModelError, match="expected a plain file"):
        heedful.load(model)


def test_a_tokenizer_without_a_token_for_the_unknown(model: Path) -> None:
    tokenizer = json.loads((model / "source.tokenizer.json").read_text(encoding="utf-8"))
    tokenizer["model"]["unk_token"] = "<nothing>"
    (model / "source.tokenizer.json").write_text(json.dumps(tokenizer), encoding="utf-8")
    seal(model)
    with pytest.raises(ModelError, match="cannot read this text"):
        heedful.load(model, "cpu").translate("zzz")


def test_weights_of_another_shape(model: Path) -> None:
    weights = unpack((model / WEIGHTS).read_bytes(), WEIGHTS)
    weights["bridge.W.0.weight"] = weights["bridge.W.0.weight"][:3]
    (model / WEIGHTS).write_bytes(pack(weights))
    seal(model)
    with pytest.raises(ModelError, match=r"'bridge.W.0.weight' has shape \(3, 16\), expected \(16, 16\)"):
        heedful.load(model)


def test_absurd_settings_cost_no_memory(model: Path) -> None:
    head = json.loads((model / CONFIG).read_text(encoding="utf-8"))
    head["config"]["model"].update(width=16384, embedding=16384, layers=32)
    write(model, head)
    with pytest.raises(ModelError, match="has shape"):
        heedful.load(model)


def test_a_vocabulary_that_does_not_fit_the_weights(model: Path) -> None:
    other = heedful.load(model).parts.source.__class__.train(["x y z"], heedful.Config().text)
    (model / "source.tokenizer.json").write_text(other.dump(), encoding="utf-8")
    seal(model)
    with pytest.raises(ModelError, match="encoder.embedding.weight"):
        heedful.load(model)


def test_unknown_settings_in_a_config(model: Path) -> None:
    head = json.loads((model / CONFIG).read_text(encoding="utf-8"))
    head["config"]["model"]["widht"] = 3
    write(model, head)
    with pytest.raises(ModelError, match="Did you mean 'width'"):
        heedful.load(model)


fuzz = settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)


def damaged(content: bytes, data: st.DataObject) -> bytes:
    """Cut, overwrite, insert or replace."""
    at = data.draw(st.integers(0, max(len(content) - 1, 0)))
    noise = data.draw(st.binary(min_size=1, max_size=40))
    return data.draw(
        st.sampled_from(
            [
                content[:at],
                content[:at] + noise + content[at + len(noise) :],
                content[:at] + noise + content[at:],
                noise,
            ]
        )
    )


def load_or_refuse(path: Path) -> None:
    """A damaged folder is refused with a `HeedfulError`, or is harmless and translates; nothing else may happen."""
    try:
        heedful.load(path, "cpu").translate("a b c")
    except HeedfulError:
        return


@fuzz
@given(data=st.data(), name=st.sampled_from(FILES), sealed=st.booleans())
def test_random_damage_gives_a_heedful_error(model: Path, data: st.DataObject, name: str, sealed: bool) -> None:
    before = {n: (model / n).read_bytes() for n in FILES}
    try:
        (model / name).write_bytes(damaged(before[name], data))
        if sealed and name != CONFIG:
            seal(model)
            load_or_refuse(model)
        elif (model / name).read_bytes() != before[name]:
            if name == CONFIG:
                load_or_refuse(model)
            else:
                with pytest.raises(ModelError):
                    heedful.load(model)
    finally:
        for n, content in before.items():
            (model / n).write_bytes(content)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=6,
)


@fuzz
@given(data=st.data(), value=json_values)
def test_any_json_value_anywhere_in_the_config(model: Path, data: st.DataObject, value: object) -> None:
    before = (model / CONFIG).read_bytes()
    head = json.loads(before)
    place = data.draw(
        st.sampled_from(["format", "heedful", "config", "notes", "files", "model", "text", "training", "key"])
    )
    if place in head:
        head[place] = value
    elif place in head["config"]:
        head["config"][place] = value
    else:
        section = data.draw(st.sampled_from(sorted(head["config"])))
        head["config"][section][data.draw(st.sampled_from(sorted(head["config"][section])))] = value
    try:
        write(model, head)
        load_or_refuse(model)
    finally:
        (model / CONFIG).write_bytes(before)


@pytest.mark.parametrize(
    ("section", "key", "value"), [("model", "dropout", 0.2), ("text", "max_length", 255), ("training", "seed", 7)]
)
def test_one_changed_number_in_the_config(model: Path, section: str, key: str, value: float) -> None:
    """Heads of 4 made 6 would be another model with the same weights."""
    head = json.loads((model / CONFIG).read_text(encoding="utf-8"))
    assert head["config"][section][key] != value
    head["config"][section][key] = value
    (model / CONFIG).write_text(json.dumps(head, indent=2), encoding="utf-8")
    with pytest.raises(ModelError, match=r"config.json: the checksum .* damaged or changed.* 'checksum'"):
        heedful.load(model)


def test_a_config_may_be_laid_out_otherwise(model: Path) -> None:
    head = json.loads((model / CONFIG).read_text(encoding="utf-8"))
    (model / CONFIG).write_text(json.dumps(dict(reversed(head.items()))), encoding="utf-8")
    heedful.load(model)


def test_a_config_from_before_it_had_a_checksum_loads_with_a_note(
    model: Path, caplog: pytest.LogCaptureFixture
) -> None:
    heedful.load(model)
    assert not caplog.records
    head = json.loads((model / CONFIG).read_text(encoding="utf-8"))
    del head["checksum"]
    (model / CONFIG).write_text(json.dumps(head), encoding="utf-8")
    heedful.load(model)
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert "no checksum in it" in caplog.text


@pytest.mark.parametrize("name", FILES)
def test_a_file_that_is_far_too_large(model: Path, name: str) -> None:
    """Even if config.json says that this is its size: weights are no larger than the settings make them."""
    with (model / name).open("r+b") as file:
        file.truncate(6 * 10**9)
    if name != CONFIG:
        files = json.loads((model / CONFIG).read_text(encoding="utf-8"))["files"]
        files[name]["bytes"] = 6 * 10**9
        edit(model, files=files)
    with pytest.raises(ModelError, match=rf"{name}: has 6000 MB; .* at most (64|1|2\.\d) MB"):
        heedful.load(model)


@pytest.mark.parametrize("size", [None, "12", -1, 1e9, True, 10**30])
def test_a_size_that_is_none(model: Path, size: object) -> None:
    edit(model, files={name: {"bytes": size, "sha256": ""} for name in FILES[1:]})
    with pytest.raises(ModelError, match="the size of .* is missing|truncated or changed"):
        heedful.load(model)


def test_what_may_be_meant_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(
        ModelError, match=r"no such model folder; if it is a name .* write hf:Helsinki-NLP/opus-mt-hi-en"
    ):
        read_model(Path("Helsinki-NLP/opus-mt-hi-en"))
    with pytest.raises(ModelError, match=r"no such model folder$"):
        read_model(Path("/nowhere-model"))
    (tmp_path / "config.json").write_text('{"model_type": "bart"}', encoding="utf-8")
    with pytest.raises(ModelError, match="of the type 'bart'.* only marian .*heedful see"):
        read_model(tmp_path)


def test_a_read_out_stays_with_its_weights(model: Path) -> None:
    """A run that is taken up again and has nothing left to do writes the same model once more."""
    write_readout(model, Readout(1, (1,), threshold=0.5, chosen="by gold"))
    parts = read_model(model)
    write_model(model, replace(parts, readout=None))
    assert read_model(model).readout == parts.readout
    write_model(model, replace(parts, readout=Readout(1)))  # what a guided run would write
    assert read_model(model).readout == parts.readout
    with torch.no_grad():
        next(parts.model.parameters()).add_(1)
    write_model(model, replace(parts, readout=None))
    assert read_model(model).readout is None
    assert "by gold" in (model / "readout.old.json").read_text()


def test_a_config_that_is_no_plain_file(tmp_path):
    for target in ("/dev/zero", tmp_path):
        (tmp_path / "config.json").unlink(missing_ok=True)
        (tmp_path / "config.json").symlink_to(target)
        with pytest.raises(ModelError, match=r"config\.json.*expected a plain file"):
            read_model(tmp_path)


def test_names_in_a_folder_steer_no_terminal(model, tmp_path):
    path = tmp_path / "m\x1b[2J"
    shutil.copytree(model, path)
    head = json.loads((path / "config.json").read_bytes())
    head["config"]["model"]["family"] = "\x1b[2J"
    head.pop("checksum", None)
    (path / "config.json").write_text(json.dumps(head), encoding="utf-8")
    with pytest.raises(ModelError) as caught:
        read_model(path)
    assert "\x1b" not in str(caught.value)
    assert "unknown model '\\x1b[2J'" in str(caught.value)
    assert str(caught.value).count("m\\x1b[2J") == 1  # the folder is named once

"""The benchmarks of captions: names of weights, held-out kinds, and the loop that training is compared with."""

from __future__ import annotations

import argparse
import csv
import gzip
from pathlib import Path

import pytest
import torch
from small_runs import benchmark


def test_weights_of_the_package_have_names_of_timm() -> None:
    photos = benchmark("photo_captions")
    assert photos.timm_name("_conv_stem.weight") == "conv_stem.weight"
    assert photos.timm_name("_bn1.running_var") == "bn2.running_var"
    assert photos.timm_name("_blocks.0._project_conv.weight") == "blocks.0.0.conv_pw.weight"
    assert photos.timm_name("_blocks.15._project_conv.weight") == "blocks.6.0.conv_pwl.weight"
    timm = pytest.importorskip("timm", reason="timm is not installed (extra vision)")
    wanted = {name for name in timm.create_model(photos.BACKBONE).state_dict() if "num_batches" not in name}
    names = [f"_blocks.{n}.{layer}" for n in range(16) for layer in (photos.BLOCK if n else photos.FIRST)]
    made = set()
    for name in [*names, *photos.STEM]:
        kinds = ("weight", "bias", "running_mean", "running_var") if "_bn" in name else ("weight",)
        made |= {photos.timm_name(f"{name}.{kind}") for kind in kinds}
    assert made | {"classifier.bias"} == wanted


def test_photographs_are_split_by_image(tmp_path: Path) -> None:
    photos = benchmark("photo_captions")
    with (tmp_path / "captions.csv").open("w", newline="", encoding="utf-8") as file:
        table = csv.writer(file)
        table.writerow(["image", "caption", "split"])
        for number in range(30):
            for caption in ("A dog .", "Two dogs run ."):
                table.writerow([f"{number}.jpg", caption, "test" if number % 3 == 0 else "train"])
    read = photos.read_photos(tmp_path)
    assert (len(read.training), len(read.valid), len(read.test)) == (18, 2, 10)
    assert not read.training.keys() & read.valid.keys()
    assert read.test["0.jpg"] == ["a dog", "two dogs run"]


def test_the_words_of_held_out_kinds_are_in_training(tmp_path: Path) -> None:
    emoji = benchmark("emoji_captions")
    people, actions = ("man", "woman", "person", "child"), ("running", "walking", "golfing", "reading", "juggling")
    tones = ("light", "medium", "dark")
    names = [f"{p} {a}: {t} skin tone" for p in people for a in actions for t in tones]
    names += [f"{tones[0]} bulb", "robot", "kiss: man, man, dark skin tone", "kiss: man, man"]
    with gzip.open(tmp_path / "t.tsv.gz", "wt", encoding="utf-8") as file:
        file.write("file\ten\thi\n" + "".join(f"{i}.png\t{name}\t{name}\n" for i, name in enumerate(names)))
    every = emoji.read_emoji(tmp_path / "t.tsv.gz")
    assert every[-1].kind == every[-2].kind == "kiss: man, man"
    training, test = emoji.split(every)
    assert 0 < len(test) <= emoji.HELD_OUT * len(every)
    assert not {one.kind for one in training} & {one.kind for one in test}
    seen = {word for one in training for word in emoji.words(one.names["en"])}
    assert {word for one in test for word in emoji.words(one.names["en"])} <= seen
    assert "robot" not in {one.kind for one in test}


def test_the_plain_loop_and_heedful_train_the_same_sizes(monkeypatch: pytest.MonkeyPatch) -> None:
    training = benchmark("caption_training")
    for name, value in {"V": 20, "D": 8, "FEATURES": 8, "SIDE": 2, "IMAGES": 4, "CAPTIONS": 12}.items():
        monkeypatch.setattr(training, name, value)
    args = argparse.Namespace(batch=4, device="cpu", updates=1, rounds=2, warmup=0)
    result = training.measure(args, bf16=False)
    assert result["heedful"] > 0
    assert result["plain"] > 0
    assert result["lowest_and_highest"][0] <= result["ratio"] <= result["lowest_and_highest"][1]
    monkeypatch.undo()
    plain = sum(weight.numel() for weight in training.PlainCaptioner().parameters())
    with torch.device("meta"):
        image = training.ImageConfig(pixels=224, patch=32, filters=training.FEATURES // 4, blocks=0, frozen=True)
        rnn = training.RnnConfig(cell="lstm", width=training.D, encoder_width=training.D // 2, embedding=training.D)
        model = training.build(rnn, image, training.V)
    assert sum(w.numel() for w in model.parameters() if w.requires_grad) == pytest.approx(plain, rel=0.01)

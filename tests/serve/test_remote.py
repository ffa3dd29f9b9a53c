"""The command line asks a service: what it prints is what a model here would have it print."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import Done
from random_translators import random_folder, random_translator
from running import running

import heedful
from heedful.client import Client, RequestTooLargeError, ServiceError
from heedful.serve.limits import Limits

KINDS = ("transformer", "rnn", "fixed")


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return {kind: random_folder(tmp_path_factory.mktemp("remote") / kind, kind) for kind in KINDS}


@pytest.fixture(scope="module")
def folder(folders: dict[str, Path]) -> Path:
    return folders["transformer"]


def printed(cli: Callable[..., Done], *arguments: object, stdin: bytes = b"") -> str:
    done = cli("translate", *arguments, stdin=stdin)
    assert done.code == 0, done.err
    return done.out


def test_the_command_line_asks_it(folder: Path, heedful_cli: Callable[..., Done]) -> None:
    model = heedful.load(folder)
    with running({"small": model, "other": model}) as service:
        there = ("--server", service.url)
        lines = b"a b\n\nc d! Bead\n"
        assert printed(heedful_cli, "-", *there, stdin=lines) == printed(heedful_cli, folder, stdin=lines)
        for arguments in (
            ("a <b>b</b>", "--html"),
            ("a <b>b</b>\n<script>// c\nf()</script>", "--html"),
            ("a b", "--beam", "3", "--n-best", "2"),
            ("a b! C", "--stream"),
            ("a b", "--alignments"),
            ("a b", "--prefix", "C"),
        ):
            assert printed(heedful_cli, "other", *arguments, *there) == printed(heedful_cli, folder, *arguments)
        assert json.loads(printed(heedful_cli, "-", "a b", "--json", *there))["text"] == model.translate("a b").text
        done = heedful_cli("translate", "nobody", "a", *there)
        assert (done.code, "there is no model 'nobody' here" in done.err) == (2, True)


def test_where_the_model_looked_is_shown(folders: dict[str, Path], heedful_cli: Callable[..., Done]) -> None:
    with running({kind: heedful.load(folder) for kind, folder in folders.items()}) as service:
        there = ("--server", service.url, "--show")
        for kind, arguments in (
            ("transformer", ("a b! Cafe", "h g")),  # a map for each sentence
            ("transformer", ("a b", "--beam", "3", "--n-best", "2", "--alignments")),
            ("rnn", ("a <b>b</b> c", "--html", "--ascii")),
            ("fixed", ("a b",)),
        ):
            expected = printed(heedful_cli, folders[kind], *arguments, "--show")
            assert printed(heedful_cli, kind, *arguments, *there) == expected
        lines = b"a b\n\nc\n"
        assert printed(heedful_cli, "rnn", *there, stdin=lines) == printed(
            heedful_cli, folders["rnn"], "--show", stdin=lines
        )
        found_by = {}
        for kind in ("rnn", "fixed"):
            found = json.loads(printed(heedful_cli, kind, "a b", "--json", *there))
            found_by[kind] = found["weights"]
            expected = json.loads(printed(heedful_cli, folders[kind], "a b", "--json", "--show"))
            assert "figure" not in found
            for name in ("source_words", "target_words"):
                assert found[name] == expected[name]
            assert found["word_confidences"] == pytest.approx(expected["word_confidences"], abs=1e-3)
            for row, other in zip(found["weights"] or (), expected["weights"] or (), strict=True):
                assert row == pytest.approx(other, abs=2e-3)
        # A stream shows the same, below what it wrote.
        for kind in folders:
            assert printed(heedful_cli, kind, "a b! Cafe", *there, "--stream") == printed(
                heedful_cli, folders[kind], "a b! Cafe", "--show"
            )
        *tokens, whole = printed(heedful_cli, "rnn", "a b", *there, "--stream", "--json").splitlines()
        assert json.loads(whole)["text"] in [json.loads(token)["text"] for token in tokens]
        assert json.loads(whole)["weights"] == found_by["rnn"]


def test_it_asks_for_less_at_once_and_remembers(folder: Path, heedful_cli: Callable[..., Done]) -> None:
    with running({"small": heedful.load(folder)}, Limits(items=3, chars=50)) as service:
        lines = "".join(f"{'abcdefgh'[i % 8]} b\n" for i in range(70)).encode()
        here = printed(heedful_cli, folder, stdin=lines)
        assert printed(heedful_cli, "-", "--server", service.url, stdin=lines) == here
        asked = service.service.metrics.requests
        assert (asked["/v1/translate", 413], asked["/v1/translate", 200]) == (1, 24)
        # A line that is too long by itself: those before it are there, and it is named.
        some = lines[: 4 * 20] + b"a" * 51 + b"\nb\n"
        done = heedful_cli("translate", "-", "--server", service.url, stdin=some)
        assert (done.code, done.out) == (2, "".join(here.splitlines(keepends=True)[:20]))
        assert "line 21: a text of 51 characters; 50 are allowed" in done.err


def test_lines_that_are_too_long_together(folder: Path, heedful_cli: Callable[..., Done]) -> None:
    with running({"small": heedful.load(folder)}, Limits(sentences=8)) as service:
        lines = b"a b. C d. E f. G h.\n" * 4 + b"a\n" * 60
        here = printed(heedful_cli, folder, stdin=lines)
        assert printed(heedful_cli, "-", "--server", service.url, stdin=lines) == here
        with pytest.raises(RequestTooLargeError, match="are allowed at once") as caught:
            service.client.translate(["a"] * 129)
        assert (caught.value.field, caught.value.allowed) == ("text", 128)


def test_nobody_there_is_said_at_once(heedful_cli: Callable[..., Done]) -> None:
    with running({"m": random_translator("rnn")}) as service:
        url = service.url
    told: list[tuple[str, float, float]] = []
    begun = time.monotonic()
    client = Client(url, patience=1.5, waits=lambda why, left: told.append((str(why), left, time.monotonic() - begun)))
    with pytest.raises(ServiceError, match="cannot be reached"):
        client.models()
    ((why, left, after),) = told
    assert "cannot be reached (Connection refused)" in why
    assert after < 0.7
    assert 1 < left <= 1.5
    begun = time.monotonic()
    done = heedful_cli("translate", "-", "a", "--server", url, "--patience", "1")
    assert (done.code, done.out) == (1, "")
    first, last = done.err.splitlines()
    assert first == f"{url}: the service cannot be reached (Connection refused); trying again for 1 s (--patience)"
    assert last == f"heedful: {url}: the service cannot be reached (Connection refused)"
    assert time.monotonic() - begun < 20
    done = heedful_cli("translate", "-", "a", "--server", url, "--patience", "0")
    assert (done.code, len(done.err.splitlines())) == (1, 1)
    done = heedful_cli("translate", "-", "a", "--server", url, "--patience", "nan")
    assert (done.code, "patience nan; expected seconds" in done.err) == (2, True)
    done = heedful_cli("translate", "x", "a", "--patience", "5")
    assert (done.code, "--patience has no effect without --server" in done.err) == (2, True)


def test_captions_of_a_server(tmp_path: Path, heedful_cli: Callable[..., Done]) -> None:
    pillow = pytest.importorskip("PIL.Image")
    from tiny_captioner import captioner, picture

    model, folder = captioner("transformer"), tmp_path / "m"
    model.save(folder)
    paths = [tmp_path / "a.png", tmp_path / "b.png"]
    for seed, path in enumerate(paths):
        pillow.fromarray(picture(seed).pixels).save(path)
    with running({"text": random_translator("rnn"), "images": model}) as service:
        there = ("--server", service.url)
        for arguments in (
            (),
            (paths[1],),
            ("--beam", "3", "--n-best", "2"),
            ("--alignments",),
            ("--prefix", "two"),
            ("--json",),
        ):
            remote = heedful_cli("caption", "-", paths[0], *arguments, *there)
            local = heedful_cli("caption", folder, paths[0], *arguments)
            assert (remote.code, remote.out, remote.err) == (local.code, local.out, local.err)
            assert remote.code == 0
        # A server sends rounded weights: the shades of a long caption may differ in a few cells.
        shown = [
            heedful_cli("caption", *which, paths[0], "--show", "--ascii").out.splitlines()
            for which in (("images", *there), (folder,))
        ]
        assert shown[0][:20] == shown[1][:20]
        assert len(shown[0]) == len(shown[1])
        assert any("largest" in line for line in shown[0])
        remote, local = (
            json.loads(heedful_cli("caption", *which, paths[0], "--json", "--alignments").out)
            for which in (("images", *there), (folder,))
        )
        assert remote.keys() == local.keys()
        assert [word["box"] for word in remote["words"]] == [word["box"] for word in local["words"]]
        done = heedful_cli("caption", "images", "-", *there, stdin=paths[0].read_bytes())
        assert done.out == heedful_cli("caption", folder, paths[0]).out
        (tmp_path / "c.png").write_text("hello")
        done = heedful_cli("caption", "-", *paths, tmp_path / "c.png", *there)
        assert (done.code, len(done.out.splitlines()), "c.png" in done.err) == (2, 2, True)
        for arguments, fact in ((("text",), "text"), (("nobody",), "nobody"), (("-", "--sample"), "--sample")):
            done = heedful_cli("caption", *arguments, paths[0], *there)
            assert (done.code, fact in done.err) == (2, True)
    done = heedful_cli("caption", folder, paths[0], "--patience", "3")
    assert (done.code, "--patience" in done.err) == (2, True)

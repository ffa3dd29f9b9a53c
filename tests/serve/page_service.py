"""A real service with small models, for tests that look at its page."""

from __future__ import annotations

import atexit
import functools
import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import browsing
import pytest
from conftest import TINY, copies

import heedful
from heedful.serve.http.app import build
from heedful.serve.http.models import ModelRegistry
from heedful.serve.http.server import Server, bind, uvicorn_config
from heedful.serve.http.service import TranslationService
from heedful.serve.limits import Limits

Visit = Callable[..., Any]

# Letters become capitals, and letters of Devanagari Arabic words, and an elephant: scripts of both directions, and a
# character that browsers count as two, in one model.
ARABIC = dict(zip("abcdefgh", ["قطة", "كلب", "بيت", "شجرة", "شمس", "قمر", "ماء", "🐘"], strict=True))
DEVANAGARI = dict(zip("abcdefgh", ["क", "ख", "ग", "घ", "च", "छ", "ज", "झ"], strict=True))
MODELS: dict[str, tuple[dict[str, object], int, float]] = {
    "fixed": ({"family": "fixed", "width": 16, "embedding": 8}, 30, 0.02),
    "attention": ({"family": "rnn", "width": 48, "embedding": 24}, 120, 0.03),
    "transformer": ({"family": "transformer", "width": 32, "heads": 2, "layers": 2, "inner": 32}, 120, 0.01),
}


def sentences() -> list[tuple[str, str]]:
    def written(text: str, letters: dict[str, str]) -> str:
        return " ".join(letters[letter] for letter in text.split())

    plain = copies(300)
    return plain + [(written(text, DEVANAGARI), written(text, ARABIC)) for text, _ in copies(300, seed=1)]


@functools.cache
def trained() -> dict[str, heedful.Translator]:
    """The three kinds of models, by name, trained once; the fixed one has learned next to nothing."""
    folder = Path(tempfile.mkdtemp(prefix="heedful-page-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    pairs, found = sentences(), {}
    for name, (model, steps, rate) in MODELS.items():
        often = {"steps": steps, "valid_every": steps, "checkpoint_every": steps, "log_every": steps}
        training = {**TINY["training"], **often, "rate": rate, "batch_sentences": 64}
        settings = {**TINY, "model": {**model, "dropout": 0.0}, "training": training}
        found[name] = heedful.train(pairs, folder / name, settings=settings)
    return found


class Running:
    """A service in a thread of this process, that can be stopped and started again at the same address."""

    def __init__(self, models: dict[str, heedful.Translator], token: str = "", **limits: float) -> None:
        self.models, self.token, self.limits = models, token, limits
        self.port = 0
        self.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/"

    def start(self) -> None:
        listening = bind("127.0.0.1", self.port)
        self.port = listening.getsockname()[1]
        service = TranslationService(ModelRegistry(self.models), Limits(**self.limits), 1)
        config = uvicorn_config(build(service, self.token), service)
        config.timeout_graceful_shutdown = 1
        self.server = Server(config, service)
        self.thread = threading.Thread(target=self.server.run, kwargs={"sockets": [listening]}, daemon=True)
        self.thread.start()
        until = time.monotonic() + 10
        while not self.server.started:
            assert time.monotonic() < until, "the service does not start"
            time.sleep(0.01)

    def stop(self) -> None:
        self.server.should_exit = True
        self.thread.join(10)
        assert not self.thread.is_alive()


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    yield from browsing.started()


@pytest.fixture(scope="module")
def service(browser: Any) -> Iterator[Running]:
    """A service with all three models; without a browser nobody looks at it."""
    running = Running(trained(), chars=400)
    yield running
    running.stop()


@pytest.fixture
def visit(browser: Any, service: Running) -> Iterator[Visit]:
    """Open the page with some of its models; at the end, what it complained of or asked of others is an error."""
    trouble: list[str] = []
    contexts = []

    def open_(*models: str, width: int = 1200, scheme: str = "light", url: str = "", **options: Any) -> Any:
        context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme, **options)
        contexts.append(context)
        context.add_init_script(f"sessionStorage.setItem('heedful-models', {chr(10).join(models)!r})" if models else "")
        page = context.new_page()
        page.set_default_timeout(10_000)
        address = url or service.url
        page.on("request", lambda one: one.url.startswith((address, "blob:")) or trouble.append(f"asked for {one.url}"))
        page.on("pageerror", lambda error: trouble.append(str(error)))
        page.on("dialog", lambda dialog: trouble.append(dialog.message))

        def said(message: Any) -> None:
            # What the service refuses, and that it is gone, chromium tells by itself.
            if not message.text.startswith("Failed to load resource"):
                trouble.append(f"{message.type}: {message.text}")

        page.on("console", said)
        page.goto(address)
        if not url:
            page.wait_for_selector("#models label", state="attached")
        return page

    yield open_
    for context in contexts:
        context.close()
    assert trouble == []


def done(page: Any, text: str = "", panel: int = 1) -> None:
    """Wait until a translation is there as a whole, and is this one."""
    lane = f".v-panel:nth-child({panel})"
    page.wait_for_selector(f"{lane} .t-translation:not(.t-streaming) .t-meta:not([hidden])")
    if text:
        page.wait_for_function(
            "([lane, text]) => document.querySelector(lane + ' .t-text')?.textContent === text && "
            "!document.querySelector(lane + ' .t-streaming')",
            arg=[lane, text],
        )


def plain(text: str) -> str:
    return text.replace("\u00a0", " ")


def said(page: Any, panel: int = 1) -> str:
    return plain(page.inner_text(f".v-panel:nth-child({panel}) .v-status"))


def word(number: int, panel: int = 1) -> str:
    return f".v-panel:nth-child({panel}) .t-word[data-i='{number - 1}']"


def saved(page: Any, kind: str, folder: Path) -> Path:
    """Save what is seen."""
    with page.expect_download() as found:
        page.click(f"#save button[value={kind}]")
    path = folder / found.value.suggested_filename
    found.value.save_as(path)
    return path

"""What browsers meet: origins of other sites, methods and paths that do not exist, and Swagger UI without a network."""

from __future__ import annotations

import http.client
import json
from collections.abc import Iterator
from typing import Any

import pytest

pytest.importorskip("fastapi")
pytest.importorskip("uvicorn")
import browsing
from random_translators import random_translator
from running import Running, running

from heedful.errors import ConfigError
from heedful.serve.http.security import check_origins
from heedful.serve.http.static import docs_files

SITE = "https://example.org"


@pytest.fixture(scope="module")
def service() -> Iterator[Running]:
    with running({"m": random_translator("rnn")}, token="secret", origins=(SITE,)) as service:
        yield service


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    yield from browsing.started()


def ask(service: Running, method: str, path: str, **headers: str) -> tuple[int, dict[str, str], bytes]:
    connection = http.client.HTTPConnection(service.url.removeprefix("http://"), timeout=20)
    body = json.dumps({"text": "a b"}) if method == "POST" else None
    connection.request(method, path, body, {name.replace("_", "-"): value for name, value in headers.items()})
    answer = connection.getresponse()
    found = answer.status, {name.lower(): value for name, value in answer.getheaders()}, answer.read()
    connection.close()
    return found


def test_paths_and_methods(service: Running) -> None:
    token = "Bearer secret"
    for method, path, status, allow in (
        ("POST", "/v1/models", 405, "GET"),
        ("GET", "/v1/translate", 405, "POST"),
        ("OPTIONS", "/v1/translate", 405, "POST"),
        ("POST", "/health", 405, "GET, HEAD"),
        ("PUT", "/docs", 405, "GET, HEAD"),
        ("PUT", "/", 405, "GET, HEAD"),
        ("GET", "/v1/models/", 404, None),
        ("POST", "/v1/translate/", 404, None),
        ("GET", "/docs/", 404, None),
        ("GET", "/health/", 404, None),
    ):
        found, headers, body = ask(
            service, method, path, Authorization=token, Content_Type="application/json", Host="localhost"
        )
        assert (method, path, found) == (method, path, status)
        assert headers.get("allow") == allow
        assert "location" not in headers
        assert json.loads(body)["status"] == status


@pytest.mark.parametrize("path", ["/", "/docs"])
def test_pages_have_a_head(service: Running, path: str) -> None:
    whole = ask(service, "GET", path, Authorization="Bearer secret")
    head = ask(service, "HEAD", path, Authorization="Bearer secret")
    assert (head[0], head[2]) == (200, b"")
    for name in ("content-type", "content-length", "content-security-policy"):
        assert head[1][name] == whole[1][name]
    assert int(head[1]["content-length"]) == len(whole[2]) > 0


def test_pages_of_a_named_origin_may_ask(service: Running) -> None:
    wanted = {"Access_Control_Request_Method": "POST", "Access_Control_Request_Headers": "authorization,content-type"}
    status, headers, _ = ask(service, "OPTIONS", "/v1/translate", Origin=SITE, **wanted)
    assert (status, headers["access-control-allow-origin"]) == (200, SITE)
    assert "POST" in headers["access-control-allow-methods"]
    assert "authorization" in headers["access-control-allow-headers"].lower()
    assert "origin" in headers["vary"].lower()
    assert "access-control-allow-credentials" not in headers
    post = {"Origin": SITE, "Content_Type": "application/json"}
    status, headers, _ = ask(service, "POST", "/v1/translate", **post, Authorization="Bearer secret")
    assert (status, headers["access-control-allow-origin"], headers["vary"]) == (200, SITE, "Origin")
    # Without the token the page can read why.
    status, headers, _ = ask(service, "POST", "/v1/translate", **post)
    assert (status, headers["access-control-allow-origin"]) == (401, SITE)


def test_pages_of_other_origins_may_not(service: Running) -> None:
    for origin in ("https://evil.example", "null", "http://example.org", "https://example.org.evil.example", "*"):
        asked = {"Origin": origin, "Access_Control_Request_Method": "POST"}
        status, headers, _ = ask(service, "OPTIONS", "/v1/translate", **asked)
        assert (status, headers.get("access-control-allow-origin")) == (400, None)
        status, headers, _ = ask(service, "GET", "/health", Origin=origin)
        assert (status, headers.get("access-control-allow-origin"), headers["vary"]) == (200, None, "Origin")


def test_without_the_option_no_origin_is_named_and_with_a_star_all_are() -> None:
    translator = random_translator("rnn")
    with running({"m": translator}) as service:
        _, headers, _ = ask(service, "GET", "/health", Origin=SITE)
        assert [name for name in headers if name.startswith("access-control")] == []
    with running({"m": translator}, origins=("*",)) as service:
        _, headers, _ = ask(service, "GET", "/health", Origin="https://anything.example")
        assert headers["access-control-allow-origin"] == "*"


def test_origins_are_checked() -> None:
    assert check_origins(["HTTPS://Example.ORG:443", "http://[::1]:8080/", "*"]) == (
        *("https://example.org", "http://[::1]:8080", "*"),
    )
    for wrong in (
        *("example.org", "https://", "https://*.example.org", "null", "", "https://a.example/path", "ftp://a.example"),
        *(
            "https://a.example?x",
            "https://user@a.example",
            "https://a.example:99999",
            "https://a b",
            "https://ü.example",
        ),
        *("https://a.example,https://b.example", "https://[::1"),
    ):
        with pytest.raises(ConfigError, match="origin") as error:
            check_origins([wrong])
        assert repr(wrong) in str(error.value)


def test_swagger_ui_needs_no_network_and_takes_the_token(service: Running, browser: Any) -> None:
    """It runs under a policy that allows nothing but the service itself."""
    context = browser.new_context(viewport={"width": 1000, "height": 900})
    page = context.new_page()
    asked: list[str] = []
    trouble: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.on("console", lambda message: trouble.append(message.text))
    page.on("pageerror", lambda error: trouble.append(str(error)))
    answer = page.goto(f"{service.url}/docs")
    policy = answer.headers["content-security-policy"]
    assert "script-src 'self';" in policy
    assert "unsafe" not in policy
    assert "http" not in policy
    page.fill("#token", "wrong")
    page.click("#pass button")
    page.wait_for_selector("#problem:not(:empty)")
    assert all("401" in message for message in trouble)
    trouble.clear()
    page.fill("#token", "secret")
    page.click("#pass button")
    page.locator(".opblock-summary-path", has_text="models").click()
    page.click("text=Try it out")
    page.click("text=Execute")
    page.wait_for_selector(".live-responses-table")
    assert page.locator(".live-responses-table .response-col_status").last.inner_text().startswith("200")
    assert page.locator(".opblock").count() >= 7
    context.close()
    assert trouble == []
    assert [url for url in asked if not url.startswith((service.url, "data:", "blob:"))] == []


def test_swagger_ui_is_only_its_own_files(service: Running) -> None:
    assert set(docs_files()) == {"index.html", "docs.js", "docs.css", "swagger-ui-bundle.js", "swagger-ui.css"}
    for path in ("/docs/../page.py", "/docs/%2e%2e/page.py", "/docs/..%2fpage.py", "/docs/none.js"):
        assert ask(service, "GET", path)[0] == 404
    status, headers, body = ask(service, "GET", "/docs")
    assert (status, headers["content-type"]) == (200, "text/html; charset=utf-8")
    assert b"://" not in body.replace(b"<!DOCTYPE html>", b"")

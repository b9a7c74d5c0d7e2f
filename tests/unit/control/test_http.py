"""The API on a port, and `tailrace serve` as a process of its own."""

from __future__ import annotations

import os
import re
import signal
import ssl
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from urllib.error import URLError

import pytest
from click.testing import CliRunner
from fastapi import FastAPI

from tailrace.cli import cli
from tailrace.control.http import HttpServer
from tailrace.errors import ConfigError
from tests.support.certificates import Authority


def application() -> FastAPI:
    app = FastAPI()

    @app.get("/")
    def root() -> str:
        return "here"

    return app


def test_api_is_served_until_the_end() -> None:
    with HttpServer(application(), "127.0.0.1:0") as server, urllib.request.urlopen(server.url) as answer:
        assert answer.read() == b'"here"'
    with pytest.raises(URLError):
        urllib.request.urlopen(server.url)


def test_api_is_served_with_tls(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    certificate, key = authority.sign("server")
    context = ssl.create_default_context(cafile=str(authority.file))
    with (
        HttpServer(application(), "127.0.0.1:0", certificate, key) as server,
        urllib.request.urlopen(server.url, context=context) as answer,
    ):
        assert server.url.startswith("https://")
        assert answer.read() == b'"here"'


@pytest.mark.parametrize(
    "address", ["0.0.0.0:0", "[::]:0", "192.0.2.1:80", "8420", "host", "a b:1", ":1", "h:99999"]
)
def test_addresses_that_cannot_be_served_are_refused(address: str) -> None:
    with pytest.raises(ConfigError) as refused:
        HttpServer(application(), address)
    assert refused.value.code in ("TR-8427", "TR-8428")


def test_certificate_that_is_none_is_refused(tmp_path: Path) -> None:
    _, key = Authority(tmp_path).sign("server")
    broken = tmp_path / "broken.pem"
    broken.write_text("no certificate")
    with pytest.raises(ConfigError, match="cannot be used") as refused:
        HttpServer(application(), "127.0.0.1:0", broken, key)
    assert refused.value.code == "TR-8428"


def test_certificate_without_key_is_refused(tmp_path: Path) -> None:
    certificate, _ = Authority(tmp_path).sign("server")
    for given in ((certificate, None), (certificate, tmp_path / "none.key")):
        with pytest.raises(ConfigError) as refused:
            HttpServer(application(), "127.0.0.1:0", *given)
        assert refused.value.code in ("TR-8427", "TR-8428")


@pytest.fixture
def served(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    arguments = ["--data-dir", str(tmp_path / "data"), "--listen", "127.0.0.1:0", "--capacity", "0"]
    with subprocess.Popen(
        [sys.executable, "-m", "tailrace", "serve", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
    ) as process:
        yield process
        process.kill()


def test_serve_prints_what_a_first_user_needs(
    served: subprocess.Popen[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert served.stdout is not None
    url = re.search(r"http://127\.0\.0\.1:\d+", served.stdout.readline())
    token = re.search(r"tr_\S{43}", served.stdout.readline())
    assert token is not None
    assert url is not None
    monkeypatch.setenv("TAILRACE_SERVER", url[0])
    monkeypatch.setenv("TAILRACE_TOKEN", token[0])
    file = tmp_path / "shop.yaml"
    file.write_text(
        "source: {url: 'mysql://db.example/shop', user: u, password: '${env:TAILRACE_SECRET_P}', "
        "tables: 'a.b'}\n"
        "sink: {type: delta, path: lake}\n"
    )
    refused = CliRunner().invoke(cli, ["apply", "-f", str(file), "--yes"])
    assert isinstance(refused.exception, ConfigError)
    assert refused.exception.hint == "tailrace serve --allow-host db.example"
    assert CliRunner().invoke(cli, ["get"]).exit_code == 0
    with urllib.request.urlopen(url[0] + "/sign-in") as page:
        assert b"<html" in page.read()
    served.send_signal(signal.SIGTERM)
    rest = served.communicate(timeout=30)[0]
    assert served.returncode == 0
    assert token[0] not in rest

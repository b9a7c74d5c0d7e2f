"""Tokens of AWS, Azure and Google as passwords: against local fakes of their endpoints, and real databases.

No cloud takes part: the fakes answer as the clouds document it, through the clouds' own libraries. What AWS
signs is compared with its documented algorithm and its published example.
"""

from __future__ import annotations

import base64
import datetime
import hashlib
import hmac
import json
import logging
import os
import pickle
import re
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, quote, urlsplit

import pytest
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import padding, rsa

from tailrace.config.options import SourceOptions, parse_options
from tailrace.errors import ConfigError, SourceError, TransientSourceError
from tailrace.sources import tokens
from tailrace.sources.mysql.connection import connect
from tailrace.sources.tokens import login_secret

for module in ("botocore", "azure.identity", "google.auth"):
    pytest.importorskip(module)

HOST = "shop.cluster-abc.eu-west-1.rds.amazonaws.com"
KEY_ID, SECRET_KEY = "AKIDEXAMPLE", "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY"
TOKEN = "eyJ-a-token-of-a-cloud"


class Fake:
    """An HTTP server that answers by a function of method, path, query, body and headers.

    Attributes:
        url: its address.
        asked: methods and paths so far.
        status: of all answers, if it is not 200.
    """

    def __init__(self, answer: Callable[[str, str, dict[str, str], Any], object]) -> None:
        self.asked: list[tuple[str, str]] = []
        self.status = 200
        fake = self

        class Handler(BaseHTTPRequestHandler):
            timeout = 10.0

            def do_GET(self) -> None:
                parts = urlsplit(self.path)
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0)).decode()
                query = {k: v[0] for k, v in parse_qs(parts.query or body).items()}
                fake.asked.append((self.command, parts.path))
                found = answer(self.command, parts.path, query, self.headers)
                data = found.encode() if isinstance(found, str) else json.dumps(found).encode()
                self.send_response(fake.status if found is not None else 404)
                kind = "text/plain" if isinstance(found, str) else "application/json"
                self.send_header("Content-Type", kind)
                self.send_header("Content-Length", str(len(data)))
                self.send_header("Metadata-Flavor", "Google")
                self.end_headers()
                self.wfile.write(data)

            def do_POST(self) -> None:
                self.do_GET()

            def do_PUT(self) -> None:
                self.do_GET()

            def log_message(self, *_: object) -> None: ...

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.address = f"127.0.0.1:{self._server.server_port}"
        self.url = f"http://{self.address}"

    def __enter__(self) -> Fake:
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture(autouse=True)
def _nobody(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """A machine without an identity in any cloud, and libraries that remember nothing."""
    from google.auth.compute_engine import _metadata

    for name in os.environ:
        if name.startswith(("AWS_", "AZURE_", "GOOGLE_", "GCE_", "IDENTITY_", "MSI_", "CLOUDSDK_")):
            monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AZURE_TOKEN_CREDENTIALS", "prod")
    monkeypatch.setattr(_metadata, "_NO_GCE_CHECK", True)
    for name in ("AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE", "CLOUDSDK_CONFIG"):
        monkeypatch.setenv(name, str(tmp_path / "nothing"))
    _forget()
    yield
    _forget()


def _forget() -> None:
    for cached in (tokens._aws_session, tokens._azure_credential, tokens._gcp_credentials):
        cached.cache_clear()


def options(authentication: str, url: str = f"mysql://{HOST}", **more: str) -> SourceOptions:
    return parse_options(
        {
            "url": url,
            "user": "reader",
            "tables": "a.b",
            "authentication": authentication,
            "tlsMode": "verify-identity",
            **more,
        }
    )


# ---- settings ----


@pytest.mark.parametrize("authentication", ["aws-rds-iam", "azure-entra", "gcp-iam"])
def test_token_is_for_a_verified_server_only(authentication: str) -> None:
    for mode in ("disabled", "preferred", "required"):
        with pytest.raises(ConfigError, match="needs a verified server") as caught:
            options(authentication, tlsMode=mode)
        assert caught.value.code == "TR-3120"
    with pytest.raises(ConfigError, match="exclude each other"):
        options(authentication, password="x")
    options(authentication, tlsMode="verify-ca")


def test_settings_without_effect_are_refused() -> None:
    for given, code in (
        ({"awsRegion": "eu-west-1", "authentication": "gcp-iam", "tlsMode": "verify-ca"}, "TR-1011"),
        ({"awsRegion": "Europe"}, "TR-1010"),
        ({"authentication": "kerberos"}, "TR-1010"),
    ):
        with pytest.raises(ConfigError) as caught:
            parse_options({"url": "mysql://h", "user": "u", "tables": "a.b", **given})
        assert caught.value.code == code


# ---- AWS ----


def _signing_key(secret: str, day: str, region: str, service: str) -> bytes:
    """Source: AWS, Signature Version 4, "Create a signed request"."""
    key = f"AWS4{secret}".encode()
    for part in (day, region, service, "aws4_request"):
        key = hmac.new(key, part.encode(), hashlib.sha256).digest()
    return key


def _aws_identity(monkeypatch: pytest.MonkeyPatch, session: str | None = None) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", KEY_ID)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET_KEY)
    if session is not None:
        monkeypatch.setenv("AWS_SESSION_TOKEN", session)


@pytest.mark.parametrize("session", [None, "session/token+of=them"])
def test_token_of_aws_is_signed_as_documented(monkeypatch: pytest.MonkeyPatch, session: str | None) -> None:
    published = _signing_key(SECRET_KEY, "20150830", "us-east-1", "iam").hex()
    assert published == "c4afb1cc5771d871763a393e44b703571b55cc28424d1a5e86da6ed3c154a4b9"
    _aws_identity(monkeypatch, session)
    token = login_secret(options("aws-rds-iam", f"postgresql://{HOST}:5433/shop", user="re@der"), "a test")
    place, _, text = token.partition("/?")
    assert place == f"{HOST}:5433"
    given = {k: v[0] for k, v in parse_qs(text).items()}
    signature = given.pop("X-Amz-Signature")
    at = given["X-Amz-Date"]
    scope = f"{at[:8]}/eu-west-1/rds-db/aws4_request"
    expected = {
        "Action": "connect",
        "DBUser": "re@der",
        "X-Amz-Algorithm": "AWS4-HMAC-SHA256",
        "X-Amz-Credential": f"{KEY_ID}/{scope}",
        "X-Amz-Date": at,
        "X-Amz-Expires": "900",
        "X-Amz-SignedHeaders": "host",
    }
    if session is not None:
        expected["X-Amz-Security-Token"] = session
    assert given == expected
    moment = datetime.datetime.strptime(at, "%Y%m%dT%H%M%SZ").replace(tzinfo=datetime.UTC)
    assert abs(time.time() - moment.timestamp()) < 60
    query = "&".join(f"{quote(k, safe='')}={quote(v, safe='')}" for k, v in sorted(given.items()))
    nothing = hashlib.sha256(b"").hexdigest()
    request = f"GET\n/\n{query}\nhost:{place}\n\nhost\n{nothing}"
    text = f"AWS4-HMAC-SHA256\n{at}\n{scope}\n{hashlib.sha256(request.encode()).hexdigest()}"
    key = _signing_key(SECRET_KEY, at[:8], "eu-west-1", "rds-db")
    assert signature == hmac.new(key, text.encode(), hashlib.sha256).hexdigest()


def test_region_is_that_of_the_option_the_host_or_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    _aws_identity(monkeypatch)
    assert "%2Feu-west-1%2F" in login_secret(options("aws-rds-iam"), "a test")
    assert "%2Fus-east-2%2F" in login_secret(options("aws-rds-iam", awsRegion="us-east-2"), "a test")
    with pytest.raises(ConfigError, match="needs the region") as caught:
        login_secret(options("aws-rds-iam", "mysql://database"), "a test")
    assert caught.value.code == "TR-3123"
    monkeypatch.setenv("AWS_DEFAULT_REGION", "ap-south-1")
    _forget()
    assert "%2Fap-south-1%2F" in login_secret(options("aws-rds-iam", "mysql://database"), "a test")


def _credentials(key_id: str, lives_s: float) -> dict[str, str]:
    until = datetime.datetime.now(datetime.UTC) + datetime.timedelta(seconds=lives_s)
    return {
        "Code": "Success",
        "AccessKeyId": key_id,
        "SecretAccessKey": SECRET_KEY,
        "Token": TOKEN,
        "Expiration": until.strftime("%Y-%m-%dT%H:%M:%SZ"),
    }


def test_credentials_of_an_instance_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    def answer(method: str, path: str, query: dict[str, str], headers: Any) -> object:
        if path == "/latest/api/token":
            return "of-the-session" if method == "PUT" else None
        if headers["X-aws-ec2-metadata-token"] != "of-the-session":
            return None
        return _credentials(KEY_ID, 6 * 3600) if path.endswith("/the-role") else "the-role"

    monkeypatch.delenv("AWS_EC2_METADATA_DISABLED")
    with Fake(answer) as fake:
        monkeypatch.setenv("AWS_EC2_METADATA_SERVICE_ENDPOINT", fake.url)
        assert KEY_ID in login_secret(options("aws-rds-iam"), "a test")
        asked = len(fake.asked)
        assert KEY_ID in login_secret(options("aws-rds-iam"), "a test")
        assert len(fake.asked) == asked


def test_credentials_of_a_container_are_renewed_shortly_before_they_expire(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lives_s = 60.0
    with Fake(lambda *_: _credentials(f"{KEY_ID}{len(fake.asked)}", lives_s)) as fake:
        monkeypatch.setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", f"{fake.url}/credentials")
        first, second = (login_secret(options("aws-rds-iam"), "a test") for _ in range(2))
        lives_s = 6 * 3600.0
        third, fourth = (login_secret(options("aws-rds-iam"), "a test") for _ in range(2))
    found = [re.search(rf"{KEY_ID}(\d+)%2F", token) for token in (first, second, third, fourth)]
    numbers = [match and int(match[1]) for match in found]
    assert numbers[0] != numbers[1] != numbers[2] == numbers[3]


def test_machine_without_an_identity_is_told_what_it_needs() -> None:
    for authentication, hint in (
        ("aws-rds-iam", "rds-db:connect"),
        ("azure-entra", "managed identity"),
        ("gcp-iam", "Cloud SQL Instance User"),
    ):
        with pytest.raises(SourceError, match="there is no token") as caught:
            login_secret(options(authentication), "a test")
        assert (caught.value.code, caught.value.retryable) == ("TR-3121", False)
        assert hint in str(caught.value.hint)


# ---- Azure and Google ----


def _azure(monkeypatch: pytest.MonkeyPatch, lives_s: float = 86_400, token: str = TOKEN) -> Fake:
    def answer(method: str, path: str, query: dict[str, str], headers: Any) -> object:
        if headers["X-IDENTITY-HEADER"] != "of-the-service":
            return None
        resource = query["resource"]
        assert resource == "https://ossrdbms-aad.database.windows.net"
        return {
            "access_token": token,
            "expires_on": str(int(time.time() + lives_s)),
            "resource": resource,
            "token_type": "Bearer",
        }

    fake = Fake(answer)
    monkeypatch.setenv("IDENTITY_ENDPOINT", f"{fake.url}/msi/token")
    monkeypatch.setenv("IDENTITY_HEADER", "of-the-service")
    return fake


def test_token_of_azure_is_kept_until_shortly_before_it_expires(monkeypatch: pytest.MonkeyPatch) -> None:
    of = options("azure-entra", "mysql://shop.mysql.database.azure.com")
    with _azure(monkeypatch) as fake:
        assert [login_secret(of, "a test") for _ in range(3)] == [TOKEN] * 3
        assert len(fake.asked) == 1
    _forget()
    with _azure(monkeypatch, lives_s=120) as fake:
        assert [login_secret(of, "a test") for _ in range(3)] == [TOKEN] * 3
        assert len(fake.asked) == 3


def _google(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, lives_s: int = 3600, token: str = TOKEN) -> Fake:
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)

    def answer(method: str, path: str, query: dict[str, str], headers: Any) -> object:
        head, claims, signature = query["assertion"].split(".")
        decoded = base64.urlsafe_b64decode(signature + "==")
        key.public_key().verify(decoded, f"{head}.{claims}".encode(), padding.PKCS1v15(), hashes.SHA256())
        found = json.loads(base64.urlsafe_b64decode(claims + "=="))
        assert found["scope"] == "https://www.googleapis.com/auth/sqlservice.login"
        return {"access_token": token, "expires_in": lives_s, "token_type": "Bearer"}

    fake = Fake(answer)
    pem = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    account = {
        "type": "service_account",
        "client_email": "reader@shop.iam.gserviceaccount.com",
        "private_key": pem.decode(),
        "private_key_id": "1",
        "token_uri": f"{fake.url}/token",
    }
    (tmp_path / "account.json").write_text(json.dumps(account))
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(tmp_path / "account.json"))
    return fake


def test_token_of_google_is_kept_until_shortly_before_it_expires(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    of = options("gcp-iam", "postgresql://10.0.0.1/shop")
    with _google(monkeypatch, tmp_path) as fake:
        assert [login_secret(of, "a test") for _ in range(3)] == [TOKEN] * 3
        assert len(fake.asked) == 1
    _forget()
    with _google(monkeypatch, tmp_path, lives_s=120) as fake:
        assert [login_secret(of, "a test") for _ in range(3)] == [TOKEN] * 3
        assert len(fake.asked) == 3


def test_token_of_google_comes_from_the_metadata_of_an_instance(monkeypatch: pytest.MonkeyPatch) -> None:
    from google.auth.compute_engine import _metadata

    def answer(method: str, path: str, query: dict[str, str], headers: Any) -> object:
        if path.endswith("/token"):
            return {"access_token": TOKEN, "expires_in": 3600, "token_type": "Bearer"}
        if path.endswith("/universe-domain"):
            return "googleapis.com"
        return {"email": "reader@shop.iam.gserviceaccount.com", "scopes": []} if path != "/" else "ok"

    monkeypatch.setattr(_metadata, "_NO_GCE_CHECK", False)
    with Fake(answer) as fake:
        monkeypatch.setattr(_metadata, "_GCE_METADATA_HOST", fake.address)
        monkeypatch.setenv("GCE_METADATA_IP", fake.address)
        of = options("gcp-iam", "postgresql://10.0.0.1/shop")
        assert [login_secret(of, "a test") for _ in range(2)] == [TOKEN] * 2
        assert [path for _, path in fake.asked].count(
            "/computeMetadata/v1/instance/service-accounts/default/token"
        ) == 1


def test_cloud_that_does_not_answer_is_asked_again(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from google.auth import _exponential_backoff

    monkeypatch.setattr(_exponential_backoff.time, "sleep", lambda _: None)
    with _google(monkeypatch, tmp_path) as fake:
        fake.status = 503
        with pytest.raises(TransientSourceError, match="issues no token now") as caught:
            login_secret(options("gcp-iam"), "a test")
    assert caught.value.code == "TR-3122"


# ---- a real server, and what is shown ----


def test_token_is_the_password_of_each_connection_and_shown_nowhere(
    mysql: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """MySQL verifies a password, and so knows the token of the fake; the way there is that of every token."""
    caplog.set_level(logging.INFO)
    second = "eyJ-the-second-token"
    url = f"mysql://{mysql.host}:{mysql.port}"
    for authentication, make in (
        ("azure-entra", lambda token: _azure(monkeypatch, 120, token)),
        ("gcp-iam", lambda token: _google(monkeypatch, tmp_path, 120, token)),
    ):
        of = options(authentication, url, tlsMode="verify-ca", tlsCa=str(mysql.data / "ca.pem"))
        assert TOKEN.encode() not in pickle.dumps(of.for_tasks())
        mysql.execute(f"CREATE USER 'reader'@'%' IDENTIFIED BY '{TOKEN}'")
        try:
            with make(TOKEN):
                connection = connect(of, purpose="a test")
                assert connection.is_encrypted
            mysql.execute(f"ALTER USER 'reader'@'%' IDENTIFIED BY '{second}'", "FLUSH PRIVILEGES")
            _forget()
            with make(second):
                connection.break_off()
                connection.connect()  # the same connection again: with the token that is valid now
                connection.close()
            _forget()
            with make("not-that-one"), pytest.raises(SourceError, match="refuses the user") as caught:
                connect(of, purpose="a test")
            assert "must be one for tokens" in str(caught.value.hint)
            _forget()
        finally:
            mysql.execute("DROP USER 'reader'@'%'")
        for shown in (repr(of), str(caught.value), caplog.text):
            assert "eyJ-" not in shown
            assert "not-that-one" not in shown


def test_server_that_is_not_verified_gets_no_token(
    mysql: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with _google(monkeypatch, tmp_path):
        url = f"mysql://{mysql.host}:{mysql.port}"
        with pytest.raises(SourceError, match="not trusted") as caught:
            connect(options("gcp-iam", url), purpose="a test")
    assert caught.value.code == "TR-3008"

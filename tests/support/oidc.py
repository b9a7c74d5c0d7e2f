"""A provider of OpenID Connect in this process, which signs whatever a test wants."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

from authlib.oauth2.rfc7636 import create_s256_code_challenge
from joserfc import jwt
from joserfc.jwk import RSAKey

from tailrace.control.oidc.settings import OidcSettings
from tailrace.control.tokens import Scope

CLIENT = "tailrace"
AUDIENCE = "tailrace-api"


@dataclass
class SmallProvider:
    """A provider.

    Args:
        url: its address.
    """

    url: str
    #: Keys that it signs with, and shows; the last one signs.
    keys: list[RSAKey] = field(default_factory=lambda: [key("one")])
    #: Requests that it got, and the last that asked for tokens.
    asked: list[str] = field(default_factory=list)
    exchanged: dict[str, str] = field(default_factory=dict)
    #: What differs from a good document, or a good ID token.
    described: dict[str, Any] = field(default_factory=dict)
    claims: dict[str, Any] = field(default_factory=dict)
    #: Answers in place of good ones, by path.
    answers: dict[str, tuple[int, bytes]] = field(default_factory=dict)
    #: The ID token in place of a good one.
    token: str | None = None
    nonce: str = ""
    challenge: str = ""

    @property
    def settings(self) -> OidcSettings:
        """Settings of a control plane that uses it."""
        grants = {
            Scope.READ: {"groups": frozenset({"staff"})},
            Scope.ADMIN: {"groups": frozenset({"data"})},
        }
        return OidcSettings(self.url, CLIENT, None, grants, api_audience=AUDIENCE)

    def sent(self, url: str) -> str:
        """Sign in as somebody who was sent to `url`; returns the `state`."""
        given = {name: values[0] for name, values in parse_qs(urlsplit(url).query).items()}
        assert given["response_type"] == "code"
        assert given["client_id"] == CLIENT
        assert given["code_challenge_method"] == "S256"
        assert "openid" in given["scope"].split()
        self.nonce, self.challenge = given["nonce"], given["code_challenge"]
        return given["state"]

    def good(self, **claims: Any) -> dict[str, Any]:
        """Claims of a good ID token, with changes; None: without that one."""
        now = int(time.time())
        found = {
            "iss": self.url,
            "aud": CLIENT,
            "sub": "7",
            "iat": now,
            "exp": now + 60,
            "nonce": self.nonce,
            "email": "ann@example.com",
            "email_verified": True,
            "groups": ["staff"],
            **claims,
        }
        return {name: value for name, value in found.items() if value is not None}

    def signed(self, claims: dict[str, Any], **header: Any) -> str:
        """A token with its newest key."""
        signer = self.keys[-1]
        return jwt.encode({"alg": "RS256", "kid": signer.kid, **header}, claims, signer)

    def access(self, **claims: Any) -> str:
        """A good access token, with changes."""
        return self.signed(self.good(aud=AUDIENCE, nonce=None, **claims))

    def answer(self, path: str, form: dict[str, str]) -> tuple[int, bytes]:
        """What it answers."""
        self.asked.append(path)
        if path in self.answers:
            return self.answers[path]
        if path == "/.well-known/openid-configuration":
            found = {
                "issuer": self.url,
                "authorization_endpoint": f"{self.url}/authorize",
                "token_endpoint": f"{self.url}/token",
                "jwks_uri": f"{self.url}/keys",
                **self.described,
            }
        elif path == "/keys":
            found = {"keys": [one.as_dict(private=False) for one in self.keys]}
        elif path == "/token":
            self.exchanged = form
            if create_s256_code_challenge(form["code_verifier"]) != self.challenge:
                return 400, b'{"error": "invalid_grant"}'
            token = self.token or self.signed(self.good(**self.claims))
            found = {"access_token": "opaque", "token_type": "Bearer", "id_token": token}
        else:
            return 404, b""
        return 200, json.dumps(found).encode()


def key(name: str) -> RSAKey:
    """A new key."""
    return RSAKey.generate_key(2048, {"kid": name, "use": "sig", "alg": "RS256"})


@contextmanager
def small_provider() -> Iterator[SmallProvider]:
    """A provider on a port of its own."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._reply({})

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"])).decode()
            self._reply({name: values[0] for name, values in parse_qs(body).items()})

        def _reply(self, form: dict[str, str]) -> None:
            status, content = provider.answer(urlsplit(self.path).path, form)
            self.send_response(status)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(content)))
            if 300 <= status < 400:
                self.send_header("location", content.decode())
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    provider = SmallProvider(f"http://127.0.0.1:{server.server_port}")
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    try:
        yield provider
    finally:
        server.shutdown()
        server.server_close()
        thread.join()

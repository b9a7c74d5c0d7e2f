"""Signing in through a provider that is honest, and through others; its tokens at the API."""

from __future__ import annotations

import base64
import hashlib
import hmac
import html
import json
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import padding
from fastapi import FastAPI
from httpx import Response
from joserfc import jwt
from joserfc.jwk import ECKey, RSAKey
from starlette.testclient import TestClient

from tailrace.control import audit
from tailrace.control.api.app import create_app
from tailrace.control.metadata.database import ControlDatabase
from tailrace.control.oidc.identity import Person
from tailrace.control.oidc.provider import Provider
from tailrace.control.oidc.sign_on import CALLBACK, SignOn
from tailrace.control.operations import Control
from tailrace.control.tokens import Attempts, Scope
from tailrace.errors import ControlError, TransientControlError
from tests.support.oidc import CLIENT, SmallProvider, key, small_provider

URL = "https://tailrace.example"
Site = tuple[TestClient, Control]


@pytest.fixture(scope="module")
def running() -> Iterator[SmallProvider]:
    with small_provider() as found:
        yield found


@pytest.fixture
def provider(running: SmallProvider) -> SmallProvider:
    """The provider, honest again."""
    fresh = SmallProvider(running.url, keys=running.keys[:1])
    running.__dict__.update(fresh.__dict__)
    return running


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[FastAPI, Control]]:
    """A control plane, which the tests of this module share."""
    directory = tmp_path_factory.mktemp("control")
    database = ControlDatabase(f"sqlite:///{directory}/t.db")
    database.prepare()
    control = Control(database, directory)
    yield create_app(control), control
    database.close()


@pytest.fixture
def site(served: tuple[FastAPI, Control], provider: SmallProvider) -> Site:
    """A browser at it, and itself."""
    app, control = served
    control.sign_on = SignOn(provider.settings, URL)
    control.attempts = Attempts(most=1000)
    # without `with`: no samples are taken
    return TestClient(app, base_url=URL, follow_redirects=False), control


def sign_in(client: TestClient, provider: SmallProvider, next_: str = "/audit") -> Response:
    sent = client.get("/sign-in/oidc", params={"next": next_})
    assert sent.status_code == 303
    state = provider.sent(sent.headers["location"])
    return client.get(CALLBACK, params={"code": "c", "state": state})


# ---- signing in ----


def test_somebody_signs_in_and_out(provider: SmallProvider, site: Site) -> None:
    client, control = site
    assert 'href="/sign-in/oidc?next=/audit"' in client.get("/sign-in?next=/audit").text
    back = sign_in(client, provider)
    assert back.status_code == 200
    assert '<meta http-equiv="refresh" content="0; url=/audit">' in back.text
    (cookie,) = [c for c in back.headers.get_list("set-cookie") if c.startswith("__Host-tailrace=ts_")]
    for word in ("HttpOnly", "SameSite=strict", "Secure", "Max-Age=28800", "Path=/"):
        assert word in cookie
    page = client.get("/audit")
    assert page.status_code == 200
    assert "oidc:ann@example.com" in page.text
    held = client.cookies["__Host-tailrace"]
    assert held.encode() not in (control.data_dir / "t.db").read_bytes()
    # a session is the browser's: the API takes it from nobody
    refused = client.get("/api/v1/me", headers={"authorization": f"Bearer {held}"})
    assert refused.status_code == 401
    assert client.get("/new").status_code == 403  # scope `read`
    form_token = page.text.split('name="form_token" value="')[1].split('"')[0]
    out = client.post("/sign-out", data={"form_token": form_token})
    assert (out.status_code, out.headers["location"]) == (303, "/sign-in?out=1")
    assert "still signed in" not in client.get("/sign-in?out=1").text  # the provider has no such address
    client.cookies.set("__Host-tailrace", held)
    assert client.get("/audit").status_code == 303
    events = control.database.read(audit.read_events)
    assert [(e.actor, e.kind) for e in events[:2]] == [
        ("oidc:ann@example.com", "session.end"),
        ("oidc:ann@example.com", "session.begin"),
    ]
    assert events[1].after == {"subject": "7", "scope": "read"}


@pytest.mark.parametrize("query", ["", "?realm=main"])
def test_page_leads_to_where_the_provider_has_people_sign_out(
    query: str, provider: SmallProvider, site: Site
) -> None:
    client, control = site
    provider.described = {"end_session_endpoint": f"{provider.url}/logout{query}"}
    assert f"{provider.url}/logout" not in client.get("/sign-in").text
    page = client.get("/sign-in?out=1").text
    (link,) = re.findall(rf'href="({re.escape(provider.url)}/logout[^"]+)"', page)
    given = parse_qs(urlsplit(html.unescape(link)).query)
    wanted = {"client_id": [CLIENT], "post_logout_redirect_uri": [f"{URL}/sign-in"]}
    assert given == wanted | ({"realm": ["main"]} if query else {})
    provider.described = {"end_session_endpoint": "javascript:alert(1)"}
    control.sign_on = SignOn(provider.settings, URL)
    assert "still signed in" not in client.get("/sign-in?out=1").text
    provider.answers["/.well-known/openid-configuration"] = 500, b""
    control.sign_on = SignOn(provider.settings, URL)
    assert "still signed in" not in client.get("/sign-in?out=1").text


def test_session_ends_by_time(provider: SmallProvider, site: Site) -> None:
    _, control = site
    assert control.sign_on is not None
    object.__setattr__(control.sign_on.settings, "session_hours", 1 / 3600 / 5)
    held = control.sign_in(Person("oidc:ann", "7", Scope.ADMIN))
    found = control.signed_in(held)
    assert found is not None
    assert (found.name, found.scope) == ("oidc:ann", Scope.ADMIN)
    time.sleep(0.3)
    assert control.signed_in(held) is None
    again = control.sign_in(Person("oidc:bob", "8", Scope.READ))
    control.sign_on = None  # the server was started without the provider
    assert control.signed_in(again) is None


def test_higher_scope_counts(provider: SmallProvider, site: Site) -> None:
    provider.claims = {"groups": ["staff", "data"]}
    client, _ = site
    assert sign_in(client, provider).status_code == 200
    assert client.get("/new").status_code == 200


@pytest.mark.parametrize(
    "next_",
    ["//evil.example", "https://evil.example/", "/\\evil.example", "javascript:alert(1)", "\t//evil.test"],
)
def test_nobody_is_led_elsewhere(next_: str, provider: SmallProvider, site: Site) -> None:
    client, _ = site
    back = sign_in(client, provider, next_)
    assert 'content="0; url=/">' in back.text
    assert "evil" not in back.text
    # the cookie is the browser's, and may be changed there
    sent = client.get("/sign-in/oidc")
    state = provider.sent(sent.headers["location"])
    secret = client.cookies["__Host-tailrace-under-way"].strip('"').partition(".")[0]
    planted = base64.urlsafe_b64encode(next_.encode()).decode()
    client.cookies.clear()
    client.cookies.set("__Host-tailrace-under-way", f"{secret}.{planted}")
    assert "evil" not in client.get(CALLBACK, params={"code": "c", "state": state}).text


def test_answer_of_another_browser_is_refused(provider: SmallProvider, site: Site) -> None:
    """Signing somebody in as somebody else, by a link with the attacker's code."""
    attacker, _ = site
    state = provider.sent(attacker.get("/sign-in/oidc").headers["location"])
    attacker.cookies.clear()
    refused = attacker.get(CALLBACK, params={"code": "c", "state": state})
    assert refused.status_code == 403
    assert "TR-8474" in refused.text
    attacker.get("/sign-in/oidc")  # a sign-in of their own is under way
    refused = attacker.get(CALLBACK, params={"code": "c", "state": state})
    assert refused.status_code == 403
    assert "/token" not in provider.asked
    for wrong in ({}, {"state": state}, {"state": "é", "code": "c"}):
        assert attacker.get(CALLBACK, params=wrong).status_code == 403


def test_code_without_its_verifier_is_worth_nothing(provider: SmallProvider, site: Site) -> None:
    client, _ = site
    sent = client.get("/sign-in/oidc").headers["location"]
    state = provider.sent(sent)
    provider.challenge = "of somebody else"
    refused = client.get(CALLBACK, params={"code": "stolen", "state": state})
    assert refused.status_code == 403
    assert "invalid_grant" in refused.text
    assert len(provider.exchanged["code_verifier"]) >= 43
    assert provider.exchanged["code_verifier"] not in parse_qs(urlsplit(sent).query).values()


def test_answer_of_another_provider_is_refused(provider: SmallProvider, site: Site) -> None:
    provider.described = {"authorization_response_iss_parameter_supported": True}
    client, _ = site
    for given in ({}, {"iss": "https://evil.example"}):
        state = provider.sent(client.get("/sign-in/oidc").headers["location"])
        answer = client.get(CALLBACK, params={"code": "c", "state": state, **given})
        assert answer.status_code == 403
    assert "/token" not in provider.asked
    state = provider.sent(client.get("/sign-in/oidc").headers["location"])
    assert client.get(CALLBACK, params={"code": "c", "state": state, "iss": provider.url}).status_code == 200


def test_refusal_of_the_provider_is_told(provider: SmallProvider, site: Site) -> None:
    client, _ = site
    for error, shown in (("access_denied", "access_denied"), ("<script>", "without a name")):
        state = provider.sent(client.get("/sign-in/oidc").headers["location"])
        answer = client.get(CALLBACK, params={"error": error, "state": state})
        assert answer.status_code == 403
        assert shown in answer.text
        assert "<script>" not in answer.text


def test_sign_ins_are_slowed_down(provider: SmallProvider, site: Site) -> None:
    client, control = site
    control.attempts = Attempts(most=2)
    assert [client.get(CALLBACK).status_code for _ in range(3)] == [403, 403, 429]
    assert client.get("/sign-in/oidc").status_code == 429


def test_without_a_provider_there_is_no_way(site: Site) -> None:
    client, control = site
    control.sign_on = None
    assert "/sign-in/oidc" not in client.get("/sign-in").text
    assert client.get("/sign-in/oidc").status_code == 404
    assert client.get(CALLBACK).status_code == 404


# ---- ID tokens ----


def hostile(provider: SmallProvider) -> dict[str, str]:
    """ID tokens that are to be refused."""
    now = int(time.time())
    good, signed = provider.good, provider.signed
    other, public = key("one"), provider.keys[0]
    pem = public.raw_value.public_key().public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    elliptic = ECKey.generate_key("P-256", {"kid": "one"})
    return {
        "issuer": signed(good(iss="https://evil.example")),
        "issuer with a slash": signed(good(iss=provider.url + "/")),
        "issuers": signed(good(iss=[provider.url])),
        "audience": signed(good(aud="another-client")),
        "audience of ours and others, for another": signed(good(aud=[CLIENT, "other"], azp="other")),
        "audience of ours and others, for nobody": signed(good(aud=[CLIENT, "other"])),
        "party": signed(good(azp="other")),
        "nonce": signed(good(nonce="of another sign-in")),
        "no nonce": signed(good(nonce=None)),
        "expired": signed(good(iat=now - 120, exp=now - 60)),
        "never expires": signed(good(exp=None)),
        "expiry as text": signed(good(exp=str(now + 60))),
        "not yet": signed(good(nbf=now + 300)),
        "from the future": signed(good(iat=now + 300)),
        "no subject": signed(good(sub=None)),
        "other access token": signed(good(at_hash="AAAAAAAAAAAAAAAAAAAAAA")),
        "algorithm none": encoded({"alg": "none"}, good()) + ".",
        "algorithm None": encoded({"alg": "None", "kid": "one"}, good()) + ".",
        "no signature": encoded({"alg": "RS256", "kid": "one"}, good()) + ".",
        "public key as secret": hs256(pem, {"alg": "HS256", "kid": "one"}, good()),
        "public key as secret, as JSON": hs256(
            json.dumps(public.as_dict(private=False)).encode(), {"alg": "HS256", "kid": "one"}, good()
        ),
        "client's name as secret": hs256(CLIENT.encode(), {"alg": "HS256"}, good()),
        "another key of that name": jwt.encode({"alg": "RS256", "kid": "one"}, good(), other),
        "another kind of key": jwt.encode({"alg": "ES256", "kid": "one"}, good(), elliptic),
        "unknown key": jwt.encode({"alg": "RS256", "kid": "two"}, good(), other),
        "key brought along": jwt.encode({"alg": "RS256", "jwk": other.as_dict(private=False)}, good(), other),
        "algorithm that the key is not for": raw(public, hashes.SHA512(), {"alg": "RS512"}, good()),
        "critical header that is unknown": raw(
            public, hashes.SHA256(), {"alg": "RS256", "crit": ["x"], "x": 1}, good()
        ),
        "changed claims": swapped(signed(good()), good(groups=["data"])),
        "no token": "a.b.c",
        "nothing": ".",
        "five parts": "a.b.c.d.e",
        "long": signed(good(more="x" * 40_000)),
        "list for claims": "eyJhbGciOiJSUzI1NiJ9.W10.AAAA",
        "nested": encoded({"alg": "RS256"}, {}).split(".")[0] + "." + b64(b"[" * 20_000) + ".AAAA",
    }


def b64(content: bytes) -> str:
    return base64.urlsafe_b64encode(content).rstrip(b"=").decode()


def encoded(header: dict[str, Any], claims: dict[str, Any]) -> str:
    return f"{b64(json.dumps(header).encode())}.{b64(json.dumps(claims).encode())}"


def raw(signer: RSAKey, digest: hashes.HashAlgorithm, header: dict[str, Any], claims: dict[str, Any]) -> str:
    """A token that the library would not make."""
    text = encoded({"kid": "one", **header}, claims)
    signature = signer.raw_value.sign(text.encode(), padding.PKCS1v15(), digest)
    return f"{text}.{b64(signature)}"


def hs256(secret: bytes, header: dict[str, Any], claims: dict[str, Any]) -> str:
    text = encoded(header, claims)
    return f"{text}.{b64(hmac.digest(secret, text.encode(), hashlib.sha256))}"


def swapped(token: str, claims: dict[str, Any]) -> str:
    header, _, signature = token.split(".")
    return f"{header}.{b64(json.dumps(claims).encode())}.{signature}"


def test_hostile_id_tokens_are_refused(provider: SmallProvider, tmp_path: Path) -> None:
    sign_on = SignOn(provider.settings, URL)
    secret = sign_on.new_secret()
    state = provider.sent(sign_on.start(secret))
    assert sign_on.finish(secret, {"code": "c", "state": state}).scope is Scope.READ
    tokens = hostile(provider)
    assert len(tokens) > 30
    for what, token in tokens.items():
        provider.token = token
        with pytest.raises(ControlError) as refused:
            sign_on.finish(secret, {"code": "c", "state": state})
        assert refused.value.code == "TR-8474", what
        assert token not in str(refused.value), what
    provider.token = None
    assert sign_on.finish(secret, {"code": "c", "state": state}).name == "oidc:ann@example.com"


def test_keys_are_rotated(provider: SmallProvider) -> None:
    now = [0.0]
    known = Provider(provider.settings, lambda: now[0])
    old = provider.signed(provider.good())
    assert known.verified(old)[1]["sub"] == "7"
    provider.keys = [provider.keys[0], key("two")]
    new = provider.signed(provider.good())
    with pytest.raises(ControlError):  # the keys were read just now
        known.verified(new)
    now[0] += 60
    assert known.verified(new)[1]["sub"] == "7"
    asked = provider.asked.count("/keys")
    stranger = jwt.encode({"alg": "RS256", "kid": "three"}, provider.good(), key("three"))
    for _ in range(20):
        with pytest.raises(ControlError):
            known.verified(stranger)
    assert provider.asked.count("/keys") == asked, "whoever sends tokens must not have the provider asked"
    provider.keys = provider.keys[1:]
    now[0] += 3600
    with pytest.raises(ControlError):
        known.verified(old)
    assert known.verified(new)[1]["sub"] == "7"


@pytest.mark.parametrize(
    "wrong",
    [
        lambda p: p.described.update(issuer="https://evil.example"),
        lambda p: p.described.update(token_endpoint="http://login.example/token"),
        lambda p: p.described.update(jwks_uri="file:///etc/passwd"),
        lambda p: p.described.update(authorization_endpoint="javascript:alert(1)"),
        lambda p: p.described.update(code_challenge_methods_supported=["plain"]),
        lambda p: p.answers.update({WELL_KNOWN: (500, b"")}),
        lambda p: p.answers.update({WELL_KNOWN: (200, b"[" * 100_000)}),
        lambda p: p.answers.update({WELL_KNOWN: (200, b"[]")}),
        lambda p: p.answers.update({WELL_KNOWN: (200, b" " * (2 << 20) + b"{}")}),
        lambda p: p.answers.update({WELL_KNOWN: (302, p.url.encode() + b"/elsewhere")}),
        lambda p: p.answers.update({"/keys": (200, b'{"keys": 1}')}),
        lambda p: p.answers.update({"/keys": (503, b"")}),
    ],
)
def test_provider_that_is_wrong_is_not_used(
    wrong: Callable[[SmallProvider], None], provider: SmallProvider
) -> None:
    token = provider.access()
    wrong(provider)
    with pytest.raises(TransientControlError) as refused:
        SignOn(provider.settings, URL).of_access_token(token)
    assert refused.value.code == "TR-8473"
    assert "/elsewhere" not in provider.asked


WELL_KNOWN = "/.well-known/openid-configuration"


# ---- who, and what they may do ----


@pytest.mark.parametrize(
    ("claims", "name"),
    [
        ({}, "oidc:ann@example.com"),
        ({"email_verified": False}, "oidc:7"),
        ({"email_verified": "true"}, "oidc:7"),
        ({"email_verified": None}, "oidc:7"),
        ({"email": 7}, "oidc:7"),
        ({"email": "\u202eann"}, "oidc:7"),
    ],
)
def test_name_is_one_that_is_sure(claims: dict[str, Any], name: str, provider: SmallProvider) -> None:
    assert SignOn(provider.settings, URL).of_access_token(provider.access(**claims)).name == name


def test_long_names_stay_apart(provider: SmallProvider) -> None:
    sign_on = SignOn(provider.settings, URL)
    names = {
        sign_on.of_access_token(provider.access(sub="x" * 200 + end, email=None)).name for end in ("a", "b")
    }
    assert len(names) == 2
    assert all(len(name) <= 128 for name in names)


@pytest.mark.parametrize(
    "groups", [None, [], ["other"], "other", ["Staff"], [["staff"]], {"staff": 1}, "staff data", 7]
)
def test_who_is_in_no_group_may_do_nothing(groups: Any, provider: SmallProvider) -> None:
    with pytest.raises(ControlError) as refused:
        SignOn(provider.settings, URL).of_access_token(provider.access(groups=groups))
    assert refused.value.code == "TR-8475"


def test_claims_in_claims_and_words(provider: SmallProvider) -> None:
    for claim, value, given in (
        ("realm_access.roles", "ops", {"realm_access": {"roles": ["ops"]}}),
        ("https://tailrace.example/roles", "ops", {"https://tailrace.example/roles": "ops"}),
        ("scope", "tailrace.ops", {"scope": "openid tailrace.ops"}),
        ("sub", "*", {}),
        ("email", "ann@example.com", {}),
    ):
        settings = provider.settings
        object.__setattr__(settings, "grants", {Scope.OPERATE: {claim: frozenset({value})}})
        sign_on = SignOn(settings, URL)
        assert sign_on.of_access_token(provider.access(groups=None, **given)).scope is Scope.OPERATE
        if claim == "email":
            with pytest.raises(ControlError):
                sign_on.of_access_token(provider.access(email_verified=False))


# ---- the API ----


def test_access_tokens_open_the_api(provider: SmallProvider, site: Site) -> None:
    client, _ = site

    def ask(token: str, path: str = "/api/v1/me") -> Response:
        return client.get(path, headers={"authorization": f"Bearer {token}"})

    assert ask(provider.access()).json()["name"] == "oidc:ann@example.com"
    assert ask(provider.access(), "/api/v1/tokens").status_code == 403
    assert ask(provider.access(groups=["data"]), "/api/v1/tokens").status_code == 200
    assert ask(provider.access(groups=["none"])).status_code == 403
    wrong = {
        "an ID token": provider.signed(provider.good(nonce="n")),
        "an ID token for the API": provider.signed(provider.good(aud="tailrace-api", nonce="n")),
        "Keycloak's ID token": provider.access(typ="ID"),
        "of another kind": provider.signed(provider.good(aud="tailrace-api", nonce=None), typ="logout+jwt"),
        "for another": provider.signed(provider.good(aud="other", nonce=None)),
        "expired": provider.access(exp=int(time.time()) - 60),
        "none": encoded({"alg": "none"}, provider.good(aud="tailrace-api", nonce=None)) + ".",
    }
    for what, token in wrong.items():
        answer = ask(token)
        assert answer.status_code == 401, what
        assert answer.json()["code"] == "TR-8474"
        assert answer.headers["www-authenticate"] == "Bearer"


def test_wrong_access_tokens_are_counted(provider: SmallProvider, site: Site) -> None:
    client, control = site
    control.attempts = Attempts(most=2)
    found = [
        client.get("/api/v1/me", headers={"authorization": "Bearer a.b.c"}).status_code for _ in range(3)
    ]
    assert found == [401, 401, 429]


def test_api_takes_none_unless_told(provider: SmallProvider, site: Site) -> None:
    settings = provider.settings
    object.__setattr__(settings, "api_audience", None)
    client, control = site
    control.sign_on = SignOn(settings, URL)
    answer = client.get("/api/v1/me", headers={"authorization": f"Bearer {provider.access()}"})
    assert answer.status_code == 401
    assert answer.json()["code"] == "TR-8437"

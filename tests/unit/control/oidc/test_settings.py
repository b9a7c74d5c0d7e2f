"""The file of `tailrace serve --oidc`."""

from __future__ import annotations

from pathlib import Path

import pytest

from tailrace.control.oidc.settings import is_safe_url, read_settings
from tailrace.control.tokens import Scope
from tailrace.errors import ConfigError

GOOD = """\
issuer: https://login.example/realms/main
client-id: tailrace
client-secret: ${env:OIDC_SECRET}
read: {hd: example.com, groups: [staff, guests]}
admin: {email: [ann@example.com]}
scopes: [email, groups]
session-hours: 2
api-audience: tailrace-api
"""


def test_file_is_read(tmp_path: Path) -> None:
    (tmp_path / "oidc.yaml").write_text(GOOD)
    found = read_settings(tmp_path / "oidc.yaml")
    assert found.grants == {
        Scope.READ: {"hd": {"example.com"}, "groups": {"staff", "guests"}},
        Scope.ADMIN: {"email": {"ann@example.com"}},
    }
    assert found.scopes == ("openid", "email", "groups")
    assert (found.session_hours, found.api_audience) == (2, "tailrace-api")
    assert found.client_secret is not None
    assert "OIDC_SECRET" not in repr(found)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("issuer: https://login.example/realms/main", "issuer: http://login.example"),
        ("issuer: https://login.example/realms/main", ""),
        ("https://login.example", "https://u:p@login.example"),
        ("https://login.example", "login.example"),
        ("${env:OIDC_SECRET}", "hunter2"),
        ("${env:OIDC_SECRET}", "${env OIDC}"),
        ("client-id: tailrace", "client-id: 7"),
        ("read: {hd: example.com, groups: [staff, guests]}", "read: staff"),
        ("[staff, guests]", "[]"),
        ("[staff, guests]", "[7]"),
        ("session-hours: 2", "session-hours: 0"),
        ("session-hours: 2", "session-hours: yes"),
        ("session-hours: 2", "session-hours: 1e9"),
        ("session-hours: 2", "sesion-hours: 2"),
        ("session-hours: 2", "ca: missing.pem"),
        ("read: {hd: example.com, groups: [staff, guests]}\nadmin: {email: [ann@example.com]}", ""),
    ],
)
def test_wrong_file_is_refused(old: str, new: str, tmp_path: Path) -> None:
    assert old in GOOD
    (tmp_path / "oidc.yaml").write_text(GOOD.replace(old, new))
    with pytest.raises(ConfigError) as refused:
        read_settings(tmp_path / "oidc.yaml")
    assert refused.value.code == "TR-8472"
    assert "hunter2" not in str(refused.value)


def test_file_that_is_missing_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"oidc\.yaml"):
        read_settings(tmp_path / "oidc.yaml")


def test_secrets_go_over_tls_or_to_this_machine_only() -> None:
    assert all(map(is_safe_url, ("https://a.example/x?y", "http://127.0.0.1:1/x", "http://localhost/")))
    for wrong in (
        "http://a.example",
        "https://",
        "https://a@b",
        "https://a/#x",
        "ftp://a",
        "https://a:x",
        None,
    ):
        assert not is_safe_url(wrong), wrong

"""Keycloak, from Maven Central: a real provider of OpenID Connect, with data in memory."""

from __future__ import annotations

import hashlib
import json
import os
import secrets
import shutil
import socket
import subprocess
import time
import urllib.error
import urllib.request
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from tailrace.cache import cache_dir, locked
from tailrace.java import require_java
from tailrace_dev.servers.jars import spark_jar
from tailrace_dev.servers.java21 import java_21
from tailrace_dev.servers.program import run

#: The distribution, and its SHA-256.
_VERSION, _DIGEST = "26.7.3", "27a6535553c3cdcd083872ba40629efafb3475e3b758e0c6f691395561dd0f1f"
_IVY_FILE = f"""<ivy-module version="2.0">
  <info organisation="tailrace" module="tests"/>
  <dependencies>
    <dependency org="org.keycloak" name="keycloak-quarkus-dist" rev="{_VERSION}" transitive="false">
      <artifact name="keycloak-quarkus-dist" type="archive" ext="zip"/>
    </dependency>
  </dependencies>
</ivy-module>
"""
#: How long a start may take on a busy machine, seconds.
_START_S = 240
REALM = "tailrace"
SECRET = "of the client"
AUDIENCE = "tailrace-api"


@dataclass
class Keycloak:
    """A server with a realm, two groups, and users whose passwords are their names."""

    url: str
    password: str

    @property
    def issuer(self) -> str:
        """The realm, as its tokens name it."""
        return f"{self.url}/realms/{REALM}"

    def token(self, realm: str, **form: str) -> str:
        """An access token."""
        request = urllib.request.Request(
            f"{self.url}/realms/{realm}/protocol/openid-connect/token", urlencode(form).encode()
        )
        with urllib.request.urlopen(request, timeout=60) as answer:
            return str(json.load(answer)["access_token"])

    def admin(self, method: str, path: str, body: Any = None) -> Any:
        """A request to its administration."""
        token = self.token(
            "master", grant_type="password", client_id="admin-cli", username="admin", password=self.password
        )
        request = urllib.request.Request(
            f"{self.url}/admin/realms{path}",
            None if body is None else json.dumps(body).encode(),
            {"authorization": f"Bearer {token}", "content-type": "application/json"},
            method=method,
        )
        with urllib.request.urlopen(request, timeout=60) as answer:
            text = answer.read()
        return json.loads(text) if text else None

    def rotate(self) -> None:
        """Have it sign with a new key."""
        key = {
            "name": secrets.token_hex(4),
            "providerId": "rsa-generated",
            "providerType": "org.keycloak.keys.KeyProvider",
            "config": {"priority": ["1000"], "keySize": ["2048"], "algorithm": ["RS256"]},
        }
        self.admin("POST", f"/{REALM}/components", key)


@contextmanager
def keycloak(redirect: str) -> Iterator[Keycloak]:
    """A server, whose client may be sent back to addresses that begin with `redirect`."""
    command, _ = java_21(f"Keycloak {_VERSION}", "a provider")
    environment = {**os.environ, "JAVA_HOME": str(Path(shutil.which(command[-1]) or "").resolve().parents[1])}
    home = _home(environment)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    # another site than 127.0.0.1: browsers hold `SameSite` cookies back when it sends them there
    found = Keycloak(f"http://localhost:{port}", secrets.token_hex())
    environment |= {
        "KC_BOOTSTRAP_ADMIN_USERNAME": "admin",
        "KC_BOOTSTRAP_ADMIN_PASSWORD": found.password,
        "JAVA_OPTS_KC_HEAP": "-Xms128m -Xmx512m",
        "JAVA_OPTS_APPEND": "-XX:TieredStopAtLevel=1",
    }
    arguments = ["start", "--optimized", "--http-enabled=true", "--http-host=127.0.0.1"]
    arguments += [f"--http-port={port}", f"--hostname={found.url}", "--cache=local"]
    log = home / "log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            ["bash", str(home / "bin" / "kc.sh"), *arguments],
            env=environment,
            stdout=output,
            stderr=subprocess.STDOUT,
        )
    try:
        _wait(found, process, log)
        _fill(found, redirect)
        yield found
    finally:
        process.terminate()
        process.wait(60)


def _home(environment: dict[str, str]) -> Path:
    home = cache_dir("keycloak") / _VERSION
    with locked(f"keycloak-{_VERSION}"):
        if home.exists():
            return home
        new = home.with_name(f"{_VERSION}.new")
        shutil.rmtree(new, ignore_errors=True)
        new.mkdir()
        module = new / "ivy.xml"
        module.write_text(_IVY_FILE)
        ivy = [require_java(), "-cp", str(spark_jar("ivy-*.jar", "Ivy")), "org.apache.ivy.Main", "-warn"]
        where = ["-cache", str(new / "cache"), "-retrieve", f"{new}/[artifact]-[revision].[ext]"]
        run([*ivy, "-ivy", str(module), *where], "Keycloak could not be downloaded")
        archive = new / f"keycloak-quarkus-dist-{_VERSION}.zip"
        with archive.open("rb") as file:
            assert hashlib.file_digest(file, "sha256").hexdigest() == _DIGEST
        with zipfile.ZipFile(archive) as packed:
            packed.extractall(new)
        unpacked = new / f"keycloak-{_VERSION}"
        build = ["bash", str(unpacked / "bin" / "kc.sh"), "build", "--db=dev-mem"]
        run(build, "Keycloak could not be built", environment)
        unpacked.rename(home)
        shutil.rmtree(new)
    return home


def _wait(found: Keycloak, process: subprocess.Popen[bytes], log: Path) -> None:
    until_s = time.monotonic() + _START_S
    while True:
        try:
            with urllib.request.urlopen(f"{found.url}/realms/master", timeout=30):
                return
        except (urllib.error.URLError, OSError):
            assert process.poll() is None, log.read_text()[-2000:]
            assert time.monotonic() < until_s, log.read_text()[-2000:]
            time.sleep(1)


def _fill(found: Keycloak, redirect: str) -> None:
    mapper = {"protocol": "openid-connect", "consentRequired": False}
    groups = {"claim.name": "groups", "full.path": "false", "id.token.claim": "true"}
    audience = {"included.custom.audience": AUDIENCE, "access.token.claim": "true"}
    client = {
        "clientId": "tailrace",
        "secret": SECRET,
        "redirectUris": [f"{redirect}*"],
        "directAccessGrantsEnabled": True,
        "attributes": {"pkce.code.challenge.method": "S256"},
        "protocolMappers": [
            {
                **mapper,
                "name": "groups",
                "protocolMapper": "oidc-group-membership-mapper",
                "config": {**groups, "access.token.claim": "true"},
            },
            {**mapper, "name": "api", "protocolMapper": "oidc-audience-mapper", "config": audience},
        ],
    }
    realm = {
        "realm": REALM,
        "enabled": True,
        "sslRequired": "none",
        "groups": [{"name": "staff"}, {"name": "data"}],
        "clients": [client],
        "users": [_user("ann", "data"), _user("bob", "staff"), _user("eve")],
    }
    found.admin("POST", "", realm)


def _user(name: str, *groups: str) -> dict[str, Any]:
    return {
        "username": name,
        "enabled": True,
        "email": f"{name}@example.com",
        "emailVerified": True,
        "firstName": name,
        "lastName": name,
        "groups": [f"/{group}" for group in groups],
        "credentials": [{"type": "password", "value": name}],
    }

"""The policy: what a pipeline file may do on a server (docs/design/0014-control-plane.md, C6).

Whoever may create subscriptions has the server write files, reach hosts and read secrets. By default a file
may use what is below the data directory, variables called `TAILRACE_SECRET_*`, and no host; it may run no
code. Options of `tailrace serve` allow more.

    setting                                              allowed by
    directories and files, `s3://`, `hdfs://`, ...       --allow-path
    hosts: sources, sinks, brokers, webhooks, masters    --allow-host     (`config.hosts`)
    ${env:NAME}                                          --allow-env
    ${file:PATH}                                         --allow-secrets  default: `secrets` below the data
    ${PROVIDER:PATH#KEY}                                 --allow-provider
    `pipeline.spark`, beyond plain settings              --allow-spark    anything of it may run code
    `functions`, `notifications.call`                    --allow-function
    `on-failure`                                         --allow-on-failure
    values of rows in a live sample                      --sample         default: `values`

The policy looks at the file as a worker gets it (`places.resolved`). SQL of transforms is Spark's: it could
call Java and read files, so that functions and queries which do are refused. Settings of Kafka's client and
of Iceberg's catalogs are those of libraries, some of which load code or run commands: only known ones pass.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import partial
from pathlib import Path
from typing import Any

from tailrace.config import host_guard
from tailrace.config.document import read_document
from tailrace.config.hosts import LookUp, is_name, problem
from tailrace.config.model import SampleMode
from tailrace.config.secret import Secret, references, shown
from tailrace.control.places import kebab, local_path, named_paths, sections
from tailrace.control.spark_settings import spark_problem, sql_problem
from tailrace.errors import ConfigError

#: Settings that name hosts, by section: as URLs, and as lists of HOST:PORT.
_URLS: Mapping[str, frozenset[str]] = {
    "source": frozenset({"url", "snapshot-url", "proxy"}),
    "sink": frozenset({"url", "schema-registry-url"}),
    "telemetry": frozenset({"endpoint"}),
    "lineage": frozenset({"url"}),
}
_HOSTS: Mapping[str, frozenset[str]] = {
    "source": frozenset({"hostname", "ssh-tunnel"}),
    "sink": frozenset({"bootstrap-servers", "name-servers"}),
    "notifications": frozenset({"bootstrap-servers"}),
    "signals": frozenset({"bootstrap-servers"}),
}
_URL = re.compile(
    r"[a-z][a-z0-9+.-]*://(?:[\w.-]+@)?(?P<host>\[[0-9A-Fa-f:.]+\]|[\w.-]+)(?::\d{1,5})?(?:[/?#][^\s\\@]*)?",
    re.IGNORECASE | re.ASCII,
)
_HOST = re.compile(r"(?:[\w.-]+@)?(?P<host>\[[0-9A-Fa-f:.]+\]|[\w.-]+)(?::\d{1,5})?", re.ASCII)
_REFERENCE = re.compile(r"\$\{[a-z][a-z0-9_-]*:[^{}$]+\}")
_MASTER = re.compile(r"local(\[(\d+|\*)(,\d+)?\])?|yarn")
#: Characters by which a path names others than it shows.
_WILD = re.compile(r"[*?{}\[\]\\\x00-\x1f\x7f]")
_STORE = re.compile(r"(?P<scheme>[a-z][a-z0-9+.-]*)://(?P<rest>.*)", re.IGNORECASE)
#: Settings of librdkafka that load no code, run no command and write no file.
_KAFKA = re.compile(
    r"security\.protocol|sasl\.(mechanisms?|username|password)|sasl\.oauthbearer\.(method|client\.id|"
    r"client\.secret|scope|token\.endpoint\.url)|ssl\.(ca|certificate|key)\.location|ssl\.key\.password|"
    r"ssl\.endpoint\.identification\.algorithm|ssl\.(ca|certificate|key)\.pem|"
    r"enable\.ssl\.certificate\.verification|https\.ca\.location|client\.id|compression\.(type|codec|level)|"
    r"(linger|batch|message|queue|request|socket|retry|reconnect|fetch|session|max|topic|metadata|delivery|"
    r"transaction|broker|connections|heartbeat|allow|acks|retries)([.a-z_]*)"
)
_KAFKA_URL = "sasl.oauthbearer.token.endpoint.url"
#: Settings of pyiceberg's catalogs likewise.
_CATALOG = frozenset(
    {
        *("type", "uri", "warehouse", "prefix", "credential", "token", "scope"),
        *("s3.access-key-id", "s3.secret-access-key", "s3.session-token", "s3.region", "s3.endpoint"),
        *("glue.region", "glue.access-key-id", "glue.secret-access-key", "glue.session-token"),
        *("oauth2-server-uri", "rest.sigv4-enabled", "rest.signing-region", "rest.signing-name"),
    }
)
_CATALOG_URLS = ("uri", "s3.endpoint", "oauth2-server-uri")


@dataclass(frozen=True)
class Policy:
    """What a pipeline file may do.

    Args:
        paths: directories, and URLs of directories in stores, beyond the data directory.
        hosts: patterns of hosts, see `config.hosts`.
        variables: patterns of environment variables that references may name.
        secrets: directories whose files references may name, beyond `secrets` below the data directory.
        providers: patterns of `PROVIDER:PATH#KEY`, of secrets that references may name.
        spark: patterns of further settings of `pipeline.spark`.
        functions: patterns of `module:function` that transforms and notifications may call.
        on_failure: whether a variable or file may hold a command that runs when a pipeline fails.
        sample: the most that a live sample may show of a pipeline's changes.
        reserved: files that are the server's own, beyond those it has below the data directory.
        look_up: looks up names of hosts; None: the machine's resolver.
    """

    paths: Sequence[str] = ()
    hosts: Sequence[str] = ()
    variables: Sequence[str] = ("TAILRACE_SECRET_*",)
    secrets: Sequence[str] = ()
    providers: Sequence[str] = ()
    spark: Sequence[str] = ()
    functions: Sequence[str] = ()
    on_failure: bool = False
    sample: SampleMode = SampleMode.VALUES
    reserved: Sequence[Path] = ()
    look_up: LookUp | None = None

    def require(self, spec: str, data_dir: Path) -> None:
        """Refuse a pipeline file that does what is not allowed.

        Args:
            spec: the file as a worker gets it, see `places.resolved`; `config.load` accepts it.
            data_dir: the server's data directory.

        Raises:
            ConfigError: it does.
        """
        document = read_document(spec)
        for path in named_paths(document):
            self._require_path(path.where, path.text, data_dir)
        self._require_references(document, "", data_dir)
        for where, section, given in sections(document):
            for key, value in given.items():
                if section == "functions":
                    self._require_function(f"{where}.{key}", str(value))
                elif value is not None:
                    self._require_setting(f"{where}.{kebab(key)}", section, kebab(key), value)

    def _require_setting(self, where: str, section: str, key: str, value: Any) -> None:
        text = str(value)
        if key in _URLS.get(section, ()):
            self._require_urls(where, text)
        elif key in _HOSTS.get(section, ()):
            for item in re.split(r"[,;]", text):
                self._require_host(where, _HOST.fullmatch(item.strip()))
        elif key == "properties" and isinstance(value, dict):
            self._require_properties(where, value)
        elif key == "catalog" and isinstance(value, dict):
            self._require_catalog(where, value)
        elif (section, key) == ("pipeline", "spark") and isinstance(value, dict):
            self._require_spark(where, value)
        elif (section, key) == ("pipeline", "master"):
            if not _MASTER.fullmatch(text):
                self._require_urls(where, re.sub(r"^k8s://(?=https?://)", "", text))
        elif (section, key) == ("pipeline", "metrics"):
            self._require_metrics(where, text)
        elif (section, key) == ("pipeline", "on-failure"):
            self._require_on_failure(where, text)
        elif (section, key) == ("notifications", "webhook"):
            self._require_webhook(where, text)
        elif (section, key) == ("notifications", "call"):
            self._require_function(where, text)
        elif section == "transform" and key in ("projection", "filter"):
            found = sql_problem(text)
            if found is not None:
                raise _refused(
                    where, found, "leave it out: with it, Spark could read files, run programs or call Java"
                )

    # ---- paths ----

    def _require_path(self, where: str, text: str, data_dir: Path) -> None:
        if _WILD.search(text) or ".." in re.split(r"[/\\]", text) or "%2e" in text.lower():
            raise _refused(where, "a path with `..` or special characters", "name the directory itself")
        path = local_path(text)
        if path is None:
            if not any(_is_below_url(text, allowed) for allowed in self.paths):
                raise _refused(where, _store(text), "tailrace serve --allow-path " + _store(text))
            return
        if not path.startswith("/"):
            raise _refused(where, "a relative path or an unknown scheme", "name an absolute path")
        real = Path(os.path.realpath(path))
        if self._is_reserved(real, data_dir):
            raise _refused(where, f"`{path}`, which is the server's own", "name another directory")
        roots = [data_dir, *(Path(allowed) for allowed in self.paths if "://" not in allowed)]
        if not _is_below(real, roots):
            raise _refused(
                where,
                f"`{path}`" + ("" if str(real) == path else " (a link to elsewhere)"),
                "name a path below the server's data directory, or: tailrace serve --allow-path DIRECTORY",
            )

    def _is_reserved(self, real: Path, data_dir: Path) -> bool:
        root = Path(os.path.realpath(data_dir))
        own = [
            root / "subscriptions",
            root / "groups",
            root / "secrets",
            *map(Path, map(os.path.realpath, self.reserved)),
        ]
        if real == root or real in root.parents:
            return True
        is_database = real.parent == root and real.name.startswith("tailrace.db")
        return is_database or any(real == each or each in real.parents for each in own)

    def _require_references(self, value: Any, where: str, data_dir: Path) -> None:
        if isinstance(value, dict):
            for key, item in value.items():
                self._require_references(item, f"{where}.{key}" if where else str(key), data_dir)
        elif isinstance(value, list):
            for number, item in enumerate(value):
                self._require_references(item, f"{where}[{number}]", data_dir)
        elif isinstance(value, str):
            for kind, name in references(value):
                if kind == "env":
                    self._require_variable(where, name)
                elif kind == "file":
                    self._require_secret_file(where, name, data_dir)
                else:
                    self._require_provided(where, kind, name)

    def _require_variable(self, where: str, name: str) -> None:
        if not any(fnmatchcase(name, pattern) for pattern in self.variables):
            raise _refused(
                where,
                f"variable {shown(name)}",
                f"name it like {' or '.join(self.variables) or 'none'}, or: tailrace serve --allow-env NAME",
            )

    def _require_provided(self, where: str, provider: str, name: str) -> None:
        text = f"{provider}:{name}"
        is_plain = ".." not in re.split(r"[/\\]", name) and "%" not in name and name.isprintable()
        if not is_plain or not any(fnmatchcase(text, pattern) for pattern in self.providers):
            raise _refused(
                where,
                f"a reference to the provider `{provider}`",
                "tailrace serve --allow-provider 'PROVIDER:PATH', a pattern; `..` and `%` are never allowed",
            )

    def _require_secret_file(self, where: str, name: str, data_dir: Path) -> None:
        roots = [data_dir / "secrets", *map(Path, self.secrets)]
        if ".." in name.split("/") or not _is_below(Path(os.path.realpath(name)), roots):
            raise _refused(
                where,
                "a reference to a file elsewhere",
                "put it into `secrets` below the server's data directory, or: tailrace serve "
                "--allow-secrets DIRECTORY",
            )

    # ---- hosts ----

    def _require_urls(self, where: str, text: str) -> None:
        scheme = text.partition("://")[0] if "://" in text else ""
        for item in text.split(","):
            url = item.strip() if "://" in item else f"{scheme}://{item.strip()}"
            self._require_host(where, _URL.fullmatch(url))

    def _require_host(self, where: str, match: re.Match[str] | None) -> None:
        host = None if match is None else match["host"].strip("[]")
        if host is None or not is_name(host):
            raise _refused(where, "an address whose host is not plain", "write SCHEME://HOST:PORT/...")
        why = problem(host, self.hosts, self.look_up)
        if why is not None:
            raise _refused(where, f"host `{host}`: {why}", f"tailrace serve --allow-host {host}")
        host_guard.named(host)

    def _require_metrics(self, where: str, text: str) -> None:
        host = text.rpartition(":")[0].strip("[]")
        if host not in ("localhost", "127.0.0.1", "::1"):
            self._require_host(where, _HOST.fullmatch(text))

    def _require_webhook(self, where: str, text: str) -> None:
        if "${" not in text:
            self._require_urls(where, text)
            return
        if not _REFERENCE.fullmatch(text):
            raise _refused(
                where, "text around a reference", "put the whole address into the variable or file"
            )
        try:
            address = Secret(text).resolve(f"`{where}`")
        except ConfigError:
            return  # not set here; the worker's server looks again
        if (match := _URL.fullmatch(address)) is None or not is_name(match["host"].strip("[]")):
            raise _refused(where, "an address whose host is not plain", "write https://HOST:PORT/...")
        if problem(match["host"].strip("[]"), self.hosts, self.look_up) is not None:
            # the address is a secret
            raise _refused(where, "a host that is not shown", "tailrace serve --allow-host HOST")
        host_guard.named(match["host"].strip("[]"))

    # ---- code ----

    def _require_properties(self, where: str, given: Mapping[str, Any]) -> None:
        for key, value in given.items():
            if not _KAFKA.fullmatch(str(key)):
                raise _refused(f"{where}.{key}", "a setting that may load or run code", "leave it out")
            if key == _KAFKA_URL:
                self._require_urls(f"{where}.{key}", str(value))

    def _require_catalog(self, where: str, given: Mapping[str, Any]) -> None:
        for key, value in given.items():
            if key not in _CATALOG:
                raise _refused(f"{where}.{key}", "a setting that may load code", "leave it out")
            text = str(value)
            if key in _CATALOG_URLS and not (key == "uri" and text.startswith("sqlite:///")):
                if "?" in text:
                    raise _refused(f"{where}.{key}", "an address with parameters", "leave them out")
                self._require_urls(f"{where}.{key}", text)

    def _require_spark(self, where: str, given: Mapping[str, Any]) -> None:
        for key, value in given.items():
            if any(fnmatchcase(str(key), pattern) for pattern in self.spark):
                continue
            found = spark_problem(str(key), str(value), partial(self._url, f"{where}.{key}"))
            if found is not None:
                raise _refused(
                    f"{where}.{key}", found, f"leave it out, or: tailrace serve --allow-spark {key}"
                )

    def _url(self, where: str, text: str) -> None:
        self._require_urls(where, text if "://" in text else f"https://{text}")

    def _require_function(self, where: str, text: str) -> None:
        if not any(fnmatchcase(text, pattern) for pattern in self.functions):
            raise _refused(where, f"code: {shown(text)}", "tailrace serve --allow-function MODULE:FUNCTION")

    def _require_on_failure(self, where: str, text: str) -> None:
        if not self.on_failure:
            raise _refused(where, "a command", "use `notifications`, or: tailrace serve --allow-on-failure")
        if not _REFERENCE.fullmatch(text):
            raise _refused(
                where, "text around a reference", "put the whole command into the variable or file"
            )


def _is_below(path: Path, roots: Sequence[Path]) -> bool:
    for root in roots:
        real = Path(os.path.realpath(root))
        if path == real or real in path.parents:
            return True
    return False


def _is_below_url(text: str, allowed: str) -> bool:
    mine, theirs = _STORE.fullmatch(text), _STORE.fullmatch(allowed)
    if mine is None or theirs is None or _scheme(mine["scheme"]) != _scheme(theirs["scheme"]):
        return False
    if re.search(r"[@#]", mine["rest"]) or "//" in mine["rest"]:
        return False
    prefix = theirs["rest"].rstrip("/")
    return mine["rest"] == prefix or mine["rest"].startswith(prefix + "/")


def _scheme(scheme: str) -> str:
    return "s3" if scheme.lower() in ("s3", "s3a", "s3n") else scheme.lower()


def _store(text: str) -> str:
    """Scheme and first part of a URL, which hold no secret that `config` lets in."""
    match = re.match(r"[A-Za-z][A-Za-z0-9+.-]*://[A-Za-z0-9._-]*", text)
    return match[0] if match else "URL"


def _refused(where: str, found: str, hint: str) -> ConfigError:
    return ConfigError(f"`{where}` is not allowed on this server", f"found {found}", hint, code="TR-8435")

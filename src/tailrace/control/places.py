"""Where a subscription's files are: the paths of its pipeline file, below the server's data directory.

A server has no working directory that users know. A relative path of a pipeline file is one below the data
directory of the server, so that the file means the same wherever it is run. `resolved` makes the file that a
worker runs: it names the subscription, and all its paths are absolute.

`named_paths` knows which settings name files; the policy looks at the same ones.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from tailrace.config.document import read_document

#: Settings that name a file or directory, by section.
_PATHS: Mapping[str, frozenset[str]] = {
    "source": frozenset(
        {
            "archive",
            "requests-path",
            "sample-path",
            "trouble-path",
            "tls-ca",
            "tls-cert",
            "tls-key",
            "ssh-key-file",
            "ssh-known-hosts-file",
            "server-public-key-file",
        }
    ),
    "sink": frozenset(
        {"path", "tls-ca", "tls-cert", "tls-key", "server-public-key-file", "schema-registry-ca"}
    ),
    "pipeline": frozenset({"checkpoint"}),
    "notifications": frozenset({"file"}),
}
#: Settings of a sink that name a file only there, by the sink's type.
_PATHS_OF_SINK: Mapping[str, frozenset[str]] = {"duckdb": frozenset({"database"})}
#: Settings of libraries that name files: of librdkafka, and of pyiceberg's catalogs.
_PATHS_OF_LIBRARY: Mapping[str, frozenset[str]] = {
    "properties": frozenset(
        {"ssl.ca.location", "ssl.certificate.location", "ssl.key.location", "https.ca.location"}
    ),
    "catalog": frozenset({"warehouse"}),
}
#: Types of catalogs that have warehouses by name.
_NAMED_WAREHOUSES = ("rest", "glue", "hive")
_FILE = re.compile(r"\$\{file:([^{}$]+)\}")
#: What begins the URL of a file on this machine.
_FILE_URL = re.compile(r"file:(?://(?=/)|(?=/(?!/)))")
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")
#: SQLite in a file, as pyiceberg's catalogs name it: three slashes before a relative path.
_SQLITE = "sqlite:///"


def resolved(spec: str, name: str, data_dir: Path) -> str:
    """The pipeline file that a worker runs.

    Args:
        spec: a subscription's file.
        name: the subscription's name, which the pipeline gets.
        data_dir: the server's data directory: relative paths are below it.

    Raises:
        ConfigError: the file is not YAML.
    """
    document = plain(read_document(spec))
    settings = document.get("pipeline") or {}
    document["pipeline"] = {**settings, "name": name}
    for path in named_paths(document):
        path.replace(lambda text: _below(data_dir, text))
    _replace_references(document, data_dir)
    return str(yaml.safe_dump(document, sort_keys=False, allow_unicode=True, width=1000))


def log_file(name: str, data_dir: Path) -> Path:
    """The log file of a subscription's worker."""
    return data_dir.absolute() / "subscriptions" / name / "tailrace.log"


class NamedPath:
    """A setting of a document that names a file.

    Args:
        where: its place, as errors name it: `sink[0].path`.
        holder: the mapping that has it.
        key: its key there.
    """

    def __init__(self, where: str, holder: dict[str, Any], key: str) -> None:
        self.where = where
        self._holder = holder
        self._key = key

    @property
    def text(self) -> str:
        """The path."""
        return str(self._holder[self._key])

    def replace(self, change: Callable[[str], str]) -> None:
        """Put what `change` makes of the path in its place."""
        self._holder[self._key] = change(self.text)


def named_paths(document: Mapping[str, Any]) -> Iterator[NamedPath]:
    """The settings of a pipeline file that name files, those that are given.

    Args:
        document: the file, which `config.load` has accepted.
    """
    for where, section, given in sections(document):
        known = _PATHS.get(section, frozenset())
        if section == "sink":
            known |= _PATHS_OF_SINK.get(str(given.get("type")), frozenset())
        for key, value in given.items():
            name = kebab(key)
            if name in known and value is not None:
                yield NamedPath(f"{where}.{name}", given, key)
            elif isinstance(value, dict):
                inside = _PATHS_OF_LIBRARY.get(name, frozenset())
                if name == "catalog" and value.get("type") in _NAMED_WAREHOUSES:
                    inside = frozenset()
                for inner in sorted(value.keys() & inside):
                    yield NamedPath(f"{where}.{name}.{inner}", value, inner)
                if name == "catalog" and str(value.get("uri", "")).startswith(_SQLITE):
                    yield NamedPath(f"{where}.{name}.uri", value, "uri")


def sections(document: Mapping[str, Any]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """The mappings of a pipeline file: place, section (`source`, `sink`, ...), and content."""
    for key, value in document.items():
        section = {"sources": "source"}.get(key, str(key))
        listed = value if isinstance(value, list) else [value]
        for number, item in enumerate(listed):
            if isinstance(item, dict):
                yield (f"{key}[{number}]" if isinstance(value, list) else str(key)), section, item


def kebab(key: object) -> str:
    """A key as `config.load` reads it."""
    return re.sub(r"(?<=[a-z0-9])([A-Z])", r"-\1", str(key)).replace("_", "-").lower()


def local_path(text: str) -> str | None:
    """The path on this machine, or a mounted one, that a setting names; None: it is the URL of a store."""
    if text.startswith(_SQLITE):
        return text.removeprefix(_SQLITE)
    text = _FILE_URL.sub("", text, count=1)
    return None if _SCHEME.match(text) else text


def _below(data_dir: Path, text: str) -> str:
    path = local_path(text)
    if path is None:
        return text
    whole = str(data_dir.absolute() / path)
    return _SQLITE + whole if text.startswith(_SQLITE) else whole


def _replace_references(document: Any, data_dir: Path) -> None:
    """Make the paths of `${file:...}` absolute, in place; SQL of transforms may hold the same characters."""
    items = document.items() if isinstance(document, dict) else enumerate(document)
    for key, value in list(items):
        if isinstance(value, str) and kebab(key) not in ("projection", "filter"):
            document[key] = _FILE.sub(lambda found: f"${{file:{data_dir.absolute() / found[1]}}}", value)
        elif isinstance(value, dict | list):
            _replace_references(value, data_dir)


def plain(value: Any) -> Any:
    """A document as plain mappings and lists, each of them once."""
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    return [plain(item) for item in value] if isinstance(value, list) else value

"""Secrets in a pipeline file that is handed to the control plane: only references are let in."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from tailrace.config.document import read_document
from tailrace.config.secret import Secret
from tailrace.errors import ConfigError

#: Words of a setting's name that say that it holds a secret, in whatever case.
_SECRET = re.compile(
    r"pass(word|wd|phrase)?$|secret|credential|token$|salt$|api[._-]?key$|access[._-]?key$|archive[._-]?key$|"
    r"private[._-]?key$|authorization|on[._-]?failure$|jaas|^webhook$|webhook[._-]?headers",
    re.IGNORECASE,
)


def require_references(spec: str) -> None:
    """Refuse a pipeline file with a secret in it: the database, its backups and the API would hold it.

    Args:
        spec: the file, which `config.load` has accepted.

    Raises:
        ConfigError: a setting whose name says that it is secret holds something else than a reference.
    """
    for path, text in _secrets(read_document(spec), "", inside=False):
        if text and not Secret(text).is_reference:
            raise ConfigError(
                f"`{path}` holds a secret",
                "the control plane keeps pipeline files, and shows them",
                "put a reference there: ${env:NAME}, ${file:PATH}, ${PROVIDER:PATH#KEY}",
                code="TR-8418",
            )


def _secrets(value: Any, path: str, *, inside: bool) -> Iterator[tuple[str, str]]:
    if isinstance(value, Mapping):
        for key, item in value.items():
            where = f"{path}.{key}" if path else str(key)
            yield from _secrets(item, where, inside=inside or _SECRET.search(str(key)) is not None)
    elif isinstance(value, list):
        for number, item in enumerate(value):
            yield from _secrets(item, f"{path}[{number}]", inside=inside)
    elif inside and value is not None and not isinstance(value, bool):
        yield path, str(value)

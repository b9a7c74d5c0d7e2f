"""Secrets: kept as references, resolved where they are used, never printed."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from tailrace.config.secret_providers import GROUP, is_provider, provided
from tailrace.errors import ConfigError

_REFERENCE = re.compile(r"\$\{([a-z][a-z0-9_-]*):([^{}$]+)\}")
#: What Spark and Hadoop put in place of themselves, and Log4j: not ours.
_OF_SPARK = frozenset({"spark", "sparkconf", "hiveconf", "hivevar", "system", "sys", "java", "date", "ctx"})
#: Text meant as a reference, well-formed or not.
_MEANT = re.compile(r"\$\s*\{?\s*(env|file|exec)\s*:", re.IGNORECASE)
#: A file that holds more is not a secret.
_MOST_BYTES = 1 << 20
_WORD = re.compile(r"[\w.+-]{1,40}")
_PASSWORD = re.compile(r"://[^/:]*:(.+)@")
#: Most characters in which a misspelled name differs.
_SLIP = 2
#: Shorter values are words such as `true`: hiding them would hide half of every message.
_LEAST_HIDDEN = 4


@dataclass(frozen=True)
class Secret:
    """A secret; `${env:NAME}`, `${file:PATH}` and `${PROVIDER:PATH#KEY}` in it stand for what is there.

    Args:
        text: the secret or a reference to it.
        is_literal: `text` is the secret, even if it looks like a reference.

    Raises:
        ValueError: `text` holds a malformed reference; the message does not show it.
    """

    text: str
    is_literal: bool = False

    def __post_init__(self) -> None:
        if not self.is_literal and _MEANT.search(_REFERENCE.sub("", self.text)):
            raise ValueError("a reference is written ${env:NAME}, ${file:PATH} or ${PROVIDER:PATH#KEY}")

    def __repr__(self) -> str:
        return "Secret(***)"

    __str__ = __repr__

    def resolve(self, what: str = "the password") -> str:
        """The secret itself, looked up now, in this process.

        Args:
            what: the setting that refers to it, for errors.

        Raises:
            ConfigError: the variable or file that it refers to does not exist, or does not hold text.
        """
        found = self.text
        if not self.is_literal:
            found = _REFERENCE.sub(lambda match: _resolved(match, what), found)
        try:
            found.encode()
        except UnicodeEncodeError:  # bytes of an environment variable that are not UTF-8
            raise ConfigError(
                f"{what} is not text", "needed: UTF-8 without the character NUL", code="TR-1103"
            ) from None
        if "\0" in found:
            raise ConfigError(
                f"{what} is not text", "needed: UTF-8 without the character NUL", code="TR-1103"
            )
        return found

    def resolved(self, what: str = "the password") -> Secret:
        """The same secret as a literal, for another machine, where references have no meaning.

        Args:
            what: the setting that refers to it, for errors.

        Raises:
            ConfigError: as `resolve`.
        """
        return Secret(self.resolve(what), is_literal=True)

    @property
    def is_reference(self) -> bool:
        """Whether it contains a reference."""
        return not self.is_literal and bool(references(self.text))


def references(text: str) -> list[tuple[str, str]]:
    """The references in a text: where each looks, `env`, `file` or a provider, and for what."""
    return [(match[1], match[2]) for match in _REFERENCE.finditer(text) if _is_known(match[1])]


def resolve_all(settings: Mapping[str, str], path: str) -> dict[str, str]:
    """Settings with their references resolved.

    Args:
        settings: names and texts.
        path: their path in the pipeline file, for errors.

    Raises:
        ConfigError: a variable or file does not exist, or a reference is malformed; names the setting.
    """
    resolved = {}
    for name, text in settings.items():
        try:
            resolved[name] = Secret(text).resolve(f"`{path}.{name}`")
        except ValueError as error:
            raise ConfigError(f"`{path}.{name}` is wrong", str(error), code="TR-1010") from None
    return resolved


def hidden(text: str, values: Iterable[str]) -> str:
    """`text` with `***` in place of each of `values`, for messages of a library that received them.

    The password in a value that is an address is also hidden on its own.
    """
    given = [value for value in values if len(value) >= _LEAST_HIDDEN]
    given += [match[1] for match in map(_PASSWORD.search, given) if match]
    for value in sorted(given, key=len, reverse=True):
        text = text.replace(value, "***")
    return text


def has_credentials(url: str) -> bool:
    """Whether `url` contains a password, or text that can only be a password without a URL's quoting."""
    _, separator, rest = url.partition("://")
    if not separator:
        return False
    authority = rest.partition("/")[0]
    user, at, _ = authority.rpartition("@")
    if at:
        return ":" in user
    _, colon, port = authority.rpartition(":")
    return bool(colon) and not authority.endswith("]") and not port.isdecimal() and "@" in rest


def refuse_credentials(url: str | None, path: str) -> None:
    """Raise a ConfigError if the address at `path` of the pipeline file has a password in it."""
    if url is not None and has_credentials(url):
        raise ConfigError(
            f"`{path}` holds a user or password",
            "an address is printed in messages and logs",
            "databases and registries have settings of their own for user and password, object stores have "
            '`pipeline.spark`: {spark.hadoop.fs.s3a.secret.key: "${env:NAME}"}',
            code="TR-1013",
        )


def shown(value: str) -> str:
    """`value` for an error if it is a plain word; an address with a password is not."""
    return f"`{value}`" if _WORD.fullmatch(value) else "a value that is not shown"


def is_slip(name: str, known: str) -> bool:
    """Whether `name` differs from `known` in at most two characters, so that it cannot hold a secret."""
    row = list(range(len(known) + 1))
    for i, letter in enumerate(name, 1):
        before, row[0] = row[0], i
        for j, other in enumerate(known, 1):
            before, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, before + (letter != other))
    return row[-1] <= _SLIP


def _is_known(kind: str) -> bool:
    return kind in ("env", "file") or is_provider(kind)


def _resolved(match: re.Match[str], what: str) -> str:
    kind, name = match[1], match[2]
    if _is_known(kind):
        return _looked_up(kind, name, what)
    if kind not in _OF_SPARK and match[0] == match.string:
        raise ConfigError(
            f"{what} names a provider of secrets that is not installed",
            f"found `{kind}`, known are `env`, `file`, `exec` and the entry points `{GROUP}`",
            "correct its name, or install its package beside Tailrace",
            code="TR-8476",
        )
    return match[0]


def _looked_up(kind: str, name: str, what: str) -> str:
    if kind not in ("env", "file"):
        return provided(kind, name, what)
    if kind == "env":
        if name not in os.environ:
            raise ConfigError(
                f"environment variable `{name}` is not set",
                f"{what} refers to it by ${{env:{name}}}",
                f"export {name}=...",
                code="TR-1101",
            )
        return os.environ[name]
    try:
        with Path(name).open("rb") as file:
            content = file.read(_MOST_BYTES + 1)
        if len(content) > _MOST_BYTES:
            raise ConfigError(
                f"file `{name}` is too large", f"{what} refers to it, needed: at most 1 MiB", code="TR-1102"
            )
        return content.decode().rstrip("\r\n")
    except OSError as error:
        raise ConfigError(
            f"file `{name}` cannot be read", f"{what} refers to it: {error.strerror}", code="TR-1102"
        ) from None
    except ValueError:  # a NUL in the path, or UnicodeDecodeError, whose text would show the content
        raise ConfigError(
            f"file `{name}` cannot be read", f"{what} refers to it: not UTF-8 text", code="TR-1102"
        ) from None

"""Secrets: kept as references, resolved where they are used, never printed."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path

from tailrace.errors import ConfigError

_REFERENCE = re.compile(r"\$\{(env|file):([^}]+)\}")


@dataclass(frozen=True)
class Secret:
    """A secret given literally, as `${env:NAME}` or as `${file:PATH}` (its last newline is left out)."""

    reference: str

    def __repr__(self) -> str:
        return "Secret(***)"

    __str__ = __repr__

    def resolve(self) -> str:
        """The secret itself, looked up now and here.

        Raises:
            ConfigError: the variable or file it refers to is not there, or holds no text.
        """
        found = self._found()
        try:
            is_text = "\0" not in found and bool(found.encode() or True)
        except UnicodeEncodeError:
            is_text = False
        if not is_text:
            raise self._no_text()
        return found

    def _found(self) -> str:
        match = _REFERENCE.fullmatch(self.reference)
        if match is None:
            return self.reference
        kind, name = match.groups()
        if kind == "env":
            if name not in os.environ:
                raise ConfigError(
                    f"environment variable `{name}` is not set",
                    "the password refers to it by ${env:" + name + "}",
                    f"export {name}=...",
                )
            return os.environ[name]
        try:
            return Path(name).read_text(encoding="utf-8").rstrip("\r\n")
        except OSError as error:
            raise ConfigError(
                f"file `{name}` cannot be read",
                f"the password refers to it: {error.strerror}",
            ) from None
        except UnicodeDecodeError:
            raise self._no_text() from None

    def _no_text(self) -> ConfigError:
        match = _REFERENCE.fullmatch(self.reference)
        named = {"env": "environment variable", "file": "file"}
        where = f"the password in {named[match[1]]} `{match[2]}`" if match else "the password"
        return ConfigError(f"{where} is not text", "needed: UTF-8 without the character NUL")

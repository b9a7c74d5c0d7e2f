"""Where secrets are beyond variables and files: `${PROVIDER:PATH}` and `${PROVIDER:PATH#KEY}`.

    exec       a program of yours: `${exec:/etc/tailrace/get-secret shop/reader#password}` runs it with the
               word behind its name, and takes what it prints; of a JSON object, the text that KEY names
    others     packages offer them as entry points of the group `tailrace.secrets`

What a provider has given is kept in this process for as long as it says, and nowhere else. It is in no error:
a provider's own messages may hold it, so that an error names its kind alone.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Protocol

from tailrace.errors import ConfigError

#: The group of entry points.
GROUP = "tailrace.secrets"
#: How long a program may take, seconds, and how much it may print, bytes.
_PROGRAM_S = 20.0
_MOST_BYTES = 1 << 20
#: How long what a program has printed is good for, seconds.
_GOOD_S = 300.0
_LONGEST_S = 86_400.0
_PROGRAM = re.compile(r"(?P<file>/[^\s#]+)(?: (?P<word>(?!-)[\w./@:=+-]+))?", re.ASCII)


@dataclass(frozen=True)
class ProvidedSecret:
    """What a provider has at a path.

    Args:
        values: texts by their keys; a text without one is at "".
        good_s: how long to keep them, seconds; then the provider is asked again.
    """

    values: Mapping[str, str] = field(repr=False)
    good_s: float = _GOOD_S


class SecretProvider(Protocol):
    """A provider; what an entry point names is called without arguments, once, and returns one."""

    def read(self, path: str) -> ProvidedSecret:
        """What is at a path, as a pipeline file names it.

        Errors name the kind of what it raises, and nothing else.
        """
        ...


class ProgramSecrets:
    """The provider `exec`."""

    def read(self, path: str) -> ProvidedSecret:
        """What a program prints."""
        found = _PROGRAM.fullmatch(path)
        if found is None or ".." in found["file"].split("/") or not os.access(found["file"], os.X_OK):
            raise ValueError(path)
        command = [found["file"], *([found["word"]] if found["word"] else [])]
        # neither a shell, nor what it says of errors: that may be the secret
        done = subprocess.run(  # noqa: S603
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=_PROGRAM_S,
            check=True,
            cwd=Path("/"),
        )
        if len(done.stdout) > _MOST_BYTES:
            raise ValueError(path)
        text = done.stdout.decode().rstrip("\r\n")
        return ProvidedSecret({"": text, **_object(text)})


def is_provider(name: str) -> bool:
    """Whether there is a provider of this name."""
    return name == "exec" or name in _offered()


def provided(name: str, reference: str, what: str) -> str:
    """A secret.

    Args:
        name: of the provider.
        reference: `PATH` or `PATH#KEY`.
        what: the setting that refers to it, for errors.

    Raises:
        ConfigError: it cannot be had.
    """
    path, mark, key = reference.partition("#")
    with _lock:
        held = _held.get((name, path))
        if held is None or time.monotonic() >= held[1]:
            found = _read(name, path, what)
            good_s = min(max(found.good_s, 0.0), _LONGEST_S)
            held = _held[name, path] = (found.values, time.monotonic() + good_s)
    value = held[0].get(key if mark else "")
    if not isinstance(value, str):
        why = "it has no text there: `#KEY` names one, if it has several"
        raise _missing(name, what, why)
    return value


def forget() -> None:
    """Forget what providers have given."""
    with _lock:
        _held.clear()
        _provider.cache_clear()
        _offered.cache_clear()


#: What providers have given, and until when it is good, by provider and path.
_held: dict[tuple[str, str], tuple[Mapping[str, str], float]] = {}
_lock = threading.RLock()


def _read(name: str, path: str, what: str) -> ProvidedSecret:
    try:
        return _provider(name).read(path)
    except Exception as error:  # noqa: BLE001 - of anybody's package; its text may hold the secret
        why = f"a {type(error).__name__} was raised"
        if isinstance(error, subprocess.CalledProcessError):
            why = f"the program ended with exit code {error.returncode}"
        raise _missing(name, what, why) from None


@cache
def _provider(name: str) -> SecretProvider:
    if name == "exec":
        return ProgramSecrets()
    found: SecretProvider = _offered()[name].load()()
    return found


@cache
def _offered() -> Mapping[str, EntryPoint]:
    """The entry points of installed packages, but for names that are ours."""
    found = entry_points(group=GROUP)
    return {point.name: point for point in found if point.name not in ("env", "file", "exec")}


def _object(text: str) -> dict[str, str]:
    """The texts of a JSON object by their keys, those of a text that is one."""
    if not text.startswith("{"):
        return {}
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return {key: value for key, value in found.items() if key and isinstance(value, str)}


def _missing(name: str, what: str, why: str) -> ConfigError:
    return ConfigError(
        f"{what} cannot be had from the provider `{name}`",
        why,
        "see that it is reached and knows the path; exec: `${exec:/PROGRAM WORD#KEY}`, a program that may be "
        "run, and prints the secret, within 20 s",
        code="TR-8477",
    )

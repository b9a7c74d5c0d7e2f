"""What `tailrace apply` would do: files beside what a server has. Pure but for reading the files."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tailrace.config.document import MOST_CHARACTERS
from tailrace.config.load import parse_pipelines
from tailrace.control.secrets import require_references
from tailrace.errors import ConfigError


@dataclass(frozen=True)
class PlannedFile:
    """What becomes of a file.

    Args:
        name: of the subscription.
        file: where the file is.
        spec: its content.
        former: what the server has; None: nothing.
        version: of that.
    """

    name: str
    file: Path
    spec: str
    former: str | None = None
    version: int | None = None

    @property
    def action(self) -> str:
        """`create`, `change` or `keep`."""
        if self.former is None:
            return "create"
        return "keep" if self.former == self.spec else "change"

    def lines(self) -> Iterator[str]:
        """The difference, as lines; pipeline files of the control plane hold no secrets."""
        yield from difflib.unified_diff(
            (self.former or "").splitlines(), self.spec.splitlines(), "server", str(self.file), lineterm=""
        )


def files_of(paths: Sequence[Path]) -> list[PlannedFile]:
    """The pipeline files at paths; of a directory, all files `.yaml` and `.yml` in it.

    Raises:
        ConfigError: there are none, one is wrong or holds a secret, or two have one name.
    """
    files: list[Path] = []
    for path in paths:
        inside = sorted(path.glob("*.y*ml")) if path.is_dir() else [path]
        files += [file for file in inside if file.suffix in (".yaml", ".yml") or file == path]
    found: dict[str, PlannedFile] = {}
    for file in files:
        planned = _read(file)
        if planned.name in found:
            raise ConfigError(
                f"two files are of subscription `{planned.name}`",
                f"found `{found[planned.name].file}` and `{file}`",
                "give each a name of its own: pipeline: {name: ...}",
                code="TR-8444",
            )
        found[planned.name] = planned
    if not found:
        raise ConfigError(
            "there is no pipeline file",
            f"found no .yaml in {', '.join(f'`{path}`' for path in paths)}",
            code="TR-8444",
        )
    return [found[name] for name in sorted(found)]


def planned(files: Sequence[PlannedFile], known: Mapping[str, Mapping[str, Any]]) -> list[PlannedFile]:
    """The files, beside what a server has of their names."""
    return [
        PlannedFile(one.name, one.file, one.spec, known[one.name]["spec"], known[one.name]["version"])
        if one.name in known
        else one
        for one in files
    ]


def _read(file: Path) -> PlannedFile:
    try:
        with file.open(encoding="utf-8") as opened:
            text = opened.read(MOST_CHARACTERS + 1)
    except OSError as error:
        raise ConfigError(f"pipeline file `{file}` cannot be read", error.strerror, code="TR-1001") from None
    except UnicodeDecodeError:
        raise ConfigError(f"pipeline file `{file}` is not UTF-8 text", code="TR-1001") from None
    first = parse_pipelines(text, default_name=file.stem)[0]
    require_references(text)
    return PlannedFile(first.named.pipeline if first.named else first.settings.name, file, text)

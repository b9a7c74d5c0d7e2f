"""A pipeline file that is made of another tool's configuration, with a comment at each setting.

A reader of such a configuration (`debezium`, `flink_cdc`, ...) fills a `Draft`: settings of sections, each
with the name that it has there, and notes about the rest. `Draft.text` is the file. Its order is that of
importance: what must be set, what has no equivalent, the sections, what is needless.

Values of secrets never get in: `Draft.secret` keeps a reference to an environment variable in their place.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import yaml

from tailrace.errors import ConfigError
from tailrace.printable import printable

#: A reference to an environment variable, as other tools write it, too.
_ENV = re.compile(r"\$\{env:(\w+)\}")
_COLUMNS = 100


@dataclass(frozen=True)
class DraftEntry:
    """A setting of the draft.

    Args:
        value: a scalar, a list of scalars, or a mapping to further entries.
        origin: the name of the setting that it was made of; empty: it follows from something else.
        remark: what is worth knowing; empty: nothing.
    """

    value: Any
    origin: str = ""
    remark: str = ""


@dataclass(frozen=True)
class Note:
    """A setting of the other tool that is not in the draft.

    Args:
        name: its name there.
        text: why.
    """

    name: str
    text: str


@dataclass
class Draft:
    """A pipeline file in the making.

    Args:
        tool: the name of the other tool, for people.
        name: the pipeline's name.
        source: the section `source`, as are the others.
        sink: likewise.
        transform: its rules.
        route: its rules.
        pipeline: the section.
        notifications: the section.
        signals: the section.
        missing: settings without an equivalent.
        needless: settings that are needless here.
        to_set: what must be set before the pipeline runs: where, and what.
    """

    tool: str
    name: str
    source: dict[str, DraftEntry] = field(default_factory=dict)
    sink: dict[str, DraftEntry] = field(default_factory=dict)
    transform: list[dict[str, DraftEntry]] = field(default_factory=list)
    route: list[dict[str, DraftEntry]] = field(default_factory=list)
    pipeline: dict[str, DraftEntry] = field(default_factory=dict)
    notifications: dict[str, DraftEntry] = field(default_factory=dict)
    signals: dict[str, DraftEntry] = field(default_factory=dict)
    missing: list[Note] = field(default_factory=list)
    needless: list[Note] = field(default_factory=list)
    to_set: list[Note] = field(default_factory=list)

    def secret(self, value: str, variable: str, origin: str, what: str = "") -> DraftEntry:
        """An entry that refers to a secret.

        Args:
            value: what the configuration has; only a reference to a variable of the environment is kept.
            variable: the name of the variable, if a new one is needed.
            origin: the setting's name there.
            what: what the variable holds; default: the value of `origin`.
        """
        kept = _ENV.fullmatch(value.strip())
        name = kept[1] if kept is not None else self._free(variable)
        note = Note(f"variable {name}", what or f"the value of {origin}")
        self.to_set.append(note)
        return DraftEntry(f"${{env:{name}}}", origin)

    def _free(self, variable: str) -> str:
        taken = {note.name for note in self.to_set}
        name, number = variable, 2
        while f"variable {name}" in taken:
            name, number = f"{variable}_{number}", number + 1
        return name

    def miss(self, name: str, text: str) -> None:
        """Note a setting without an equivalent."""
        self.missing.append(Note(name, text))

    def need_not(self, name: str, text: str) -> None:
        """Note a setting that is needless here."""
        self.needless.append(Note(name, text))

    def must_set(self, where: str, text: str) -> None:
        """Note what must be set before the pipeline runs."""
        self.to_set.append(Note(where, text))

    def settle(self, origin: str) -> None:
        """Set the section `pipeline`'s name and checkpoint.

        Args:
            origin: the setting that the name is of; empty: that of the file.
        """
        name = re.sub(r"[^A-Za-z0-9_.-]+", "_", self.name).strip("._") or "pipeline"
        self.pipeline["name"] = DraftEntry(name, origin)
        self.pipeline["checkpoint"] = DraftEntry(f"/var/lib/tailrace/{name}")
        self.must_set("pipeline.checkpoint", "a directory that lasts: it holds the offset")

    def require_complete(self) -> None:
        """Refuse a draft that lacks something of what it was made of (`--strict`).

        Raises:
            ConfigError: a setting has no equivalent; names them all.
        """
        if self.missing:
            count = len(self.missing)
            raise ConfigError(
                f"{count} {'setting has' if count == 1 else 'settings have'} no equivalent",
                "; ".join(f"{note.name}: {note.text}" for note in self.missing),
                "leave out --strict for a file without them, whose comments name them",
                code="TR-1353",
            )

    def text(self, command: str) -> str:
        """The pipeline file.

        Args:
            command: what made it.
        """
        lines = _comment(f"Made by `{command}`. Comments at settings name what they are in {self.tool}.")
        lines += _notes("Set these before it runs:", self.to_set)
        lines += _notes(f"No equivalent here; the pipeline differs from {self.tool} in this:", self.missing)
        for name in ("source", "transform", "route", "sink", "signals", "notifications", "pipeline"):
            section = getattr(self, name)
            if isinstance(section, list) and section:
                lines += ["", f"{name}:"]
                for rule in section:
                    first, *rest = _mapping(rule, 4)
                    lines += [f"  - {first[4:]}", *rest]
            elif section:
                lines += ["", f"{name}:", *_mapping(section, 2)]
        lines += ["", *_notes("Needless here:", self.needless)[1:]] if self.needless else []
        return "\n".join(lines) + "\n"


def _mapping(entries: Mapping[str, DraftEntry], indent: int) -> list[str]:
    lines = []
    space = " " * indent
    for name, entry in entries.items():
        comment = "; ".join(
            filter(None, (entry.origin if entry.origin != name else "as there", entry.remark))
        )
        if not entry.origin and not entry.remark:
            comment = ""
        after = f"  # {printable(comment)}" if comment else ""
        if isinstance(entry.value, dict):
            lines += [f"{space}{_scalar(name)}:{after}", *_mapping(entry.value, indent + 2)]
        elif isinstance(entry.value, list | tuple):
            lines.append(f"{space}{_scalar(name)}:{after}")
            lines += [f"{space}  - {_scalar(item)}" for item in entry.value]
        else:
            lines.append(f"{space}{_scalar(name)}: {_scalar(entry.value)}{after}")
    return lines


def _scalar(value: object) -> str:
    """`value` as YAML on one line."""
    text: str = yaml.safe_dump(value, width=float("inf"), allow_unicode=True)
    if "\n" in text.removesuffix("\n...\n").removesuffix("\n"):
        text = yaml.safe_dump(value, width=float("inf"), default_style='"')
    return text.removesuffix("\n...\n").removesuffix("\n")


def _notes(title: str, notes: Iterable[Note]) -> list[str]:
    names: dict[str, list[str]] = {}
    for note in notes:
        names.setdefault(note.text, []).append(note.name)
    listed = [line for text, named in names.items() for line in _item(f"{', '.join(named)}: {text}")]
    return ["#", *_comment(title), *listed] if listed else []


def _item(text: str) -> list[str]:
    first, *rest = _wrapped(printable(text), _COLUMNS - 6)
    return [f"#   - {first}", *(f"#     {line}" for line in rest)]


def _comment(text: str) -> list[str]:
    return [f"# {line}" for line in _wrapped(printable(text), _COLUMNS - 2)]


def _wrapped(text: str, width: int) -> list[str]:
    lines = [""]
    for word in text.split(" "):
        if lines[-1] and len(lines[-1]) + 1 + len(word) > width:
            lines.append(word)
        else:
            lines[-1] = f"{lines[-1]} {word}" if lines[-1] else word
    return lines

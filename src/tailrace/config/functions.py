"""The section `functions` of a pipeline file: names in SQL, and the functions in Python behind them.

A function is named as `module:function`, as an entry point is. A module is found where the user's Python
finds it, and never by a path: the file cannot bring code of its own.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from tailrace.config.secret import shown
from tailrace.errors import ConfigError

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_REFERENCE = re.compile(rf"(?P<module>{_NAME.pattern}(\.{_NAME.pattern})*):(?P<attribute>{_NAME.pattern})")


@dataclass(frozen=True)
class PythonFunction:
    """A function that transforms can call.

    Args:
        name: its name in SQL.
        module: the module that has it.
        attribute: its name there.
    """

    name: str
    module: str
    attribute: str

    def __str__(self) -> str:
        return f"{self.module}:{self.attribute}"

    def is_named_in(self, sql: str) -> bool:
        """Whether `sql` may call it."""
        return re.search(rf"\b{self.name}\b", sql, re.IGNORECASE) is not None


def parse_functions(given: Mapping[str, str]) -> tuple[PythonFunction, ...]:
    """The functions of a pipeline file.

    Args:
        given: the section, names and references.

    Raises:
        ConfigError: one is written in another way, or two have the same name.
    """
    found: dict[str, PythonFunction] = {}
    for name, text in given.items():
        reference = _REFERENCE.fullmatch(text)
        if _NAME.fullmatch(name) is None:
            raise ConfigError(
                "a name in `functions` is wrong",
                f"found {shown(name)}, allowed: letters, digits and `_`, no digit first",
                code="TR-1516",
            )
        if reference is None:
            raise ConfigError(
                f"`functions.{name}` is wrong",
                f"found {shown(text)}, allowed: MODULE:FUNCTION, e.g. cleaning:{name}",
                "name the module as `import` does, and not by a path; `--functions-path` says where it is",
                code="TR-1516",
            )
        if name.lower() in found:
            raise ConfigError(
                f"`functions.{name}` is given twice", "names of SQL are the same in any case", code="TR-1516"
            )
        found[name.lower()] = PythonFunction(name, reference["module"], reference["attribute"])
    return tuple(found.values())

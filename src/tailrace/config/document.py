"""YAML text to plain values: strict, bounded, and with errors that show a position, never the text there.

The text at an error may be a password: unquoted, `*x` is an alias, `!x` a tag and `x: y` a key. PyYAML's own
messages quote it, so only those of them are shown that have a fixed text.

Anchors, aliases and merge keys are read, but the number of values is bounded: ten lines can stand for more
values than fit into memory.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import yaml

from tailrace.errors import ConfigError

#: Most characters of a file.
MOST_CHARACTERS = 1 << 20
#: Most values of a file with its aliases expanded, and their greatest depth.
_MOST_VALUES = 100_000
_DEEPEST = 32
_MERGE = "tag:yaml.org,2002:merge"
_COLLECTIONS = ("tag:yaml.org,2002:map", "tag:yaml.org,2002:seq")
#: Messages of PyYAML that contain no text of the file.
_FIXED = re.compile(
    r"mapping values are not allowed here|could not find expected ':'|found unexpected end of stream"
    r"|expected '?<[a-z ]+>'?, but found '?<[a-z ]+>'?"
)
_QUOTE = "put quotes around a value that holds one of * & ! % @ ` # : { } [ ]"


class Section(dict[str, Any]):
    """A mapping, and the position of each of its keys in the file."""

    def __init__(self) -> None:
        super().__init__()
        self.places: dict[str, str] = {}


def read_document(text: str) -> Any:
    """The value that the YAML `text` describes; mappings are `Section`.

    Raises:
        ConfigError: it is not YAML, a mapping has a key twice, or it is too large. Names the position.
    """
    if len(text) > MOST_CHARACTERS:
        raise ConfigError(
            "the pipeline file is too large", f"needed: at most {MOST_CHARACTERS} characters", code="TR-1003"
        )
    try:
        loader = yaml.SafeLoader(text)
    except yaml.YAMLError:
        raise _control_characters() from None
    try:
        node = loader.get_single_node()
        return None if node is None else _Reader(loader).value(node, 0)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        problem = error.problem or ""
        raise ConfigError(
            f"the pipeline file is not YAML{'' if mark is None else f' at {_place(mark)}'}",
            problem if _FIXED.fullmatch(problem) else None,
            _QUOTE,
            code="TR-1002",
        ) from None
    except yaml.YAMLError:
        raise _control_characters() from None
    except RecursionError:
        raise _too_much("it is nested too deeply") from None
    finally:
        loader.dispose()


class _Reader:
    """Converts nodes to values, and counts them."""

    def __init__(self, loader: yaml.SafeLoader) -> None:
        self._loader = loader
        self._values = 0

    def value(self, node: yaml.Node, depth: int) -> Any:
        """The value of `node`."""
        self._values += 1
        if self._values > _MOST_VALUES:
            raise _too_much(f"it stands for more than {_MOST_VALUES} values")
        if depth > _DEEPEST:
            raise _too_much("it is nested too deeply")
        try:
            if node.tag in _COLLECTIONS and isinstance(node, yaml.SequenceNode):
                return [self.value(item, depth + 1) for item in node.value]
            if node.tag in _COLLECTIONS and isinstance(node, yaml.MappingNode):
                return self._mapping(node, depth)
            if isinstance(node, yaml.ScalarNode):
                return self._loader.construct_object(node)
            raise ValueError
        except (ValueError, AttributeError, yaml.YAMLError):  # a tag unknown, or that the value does not fit
            raise ConfigError(
                f"the value at {_place(node.start_mark)} of the pipeline file cannot be read",
                "it has a tag, or is a number or date that does not exist",
                _QUOTE,
                code="TR-1002",
            ) from None

    def _mapping(self, node: yaml.MappingNode, depth: int) -> Section:
        made = Section()
        merged: list[Section] = []
        for key, value in node.value:
            place = _place(key.start_mark)
            if key.tag == _MERGE:
                merged += self._merged(value, place, depth)
                continue
            if not isinstance(key, yaml.ScalarNode):
                raise ConfigError(f"the key at {place} of the pipeline file is not text", code="TR-1004")
            if key.value in made:
                raise ConfigError(
                    f"the key at {place} of the pipeline file is given twice",
                    f"the first is at {made.places[key.value]}",
                    "leave one of them out",
                    code="TR-1005",
                )
            made[key.value] = self.value(value, depth + 1)
            made.places[key.value] = place
        for other in merged:
            for name in other.keys() - made.keys():
                made[name], made.places[name] = other[name], other.places[name]
        return made

    def _merged(self, node: yaml.Node, place: str, depth: int) -> Iterator[Section]:
        for value in node.value if isinstance(node, yaml.SequenceNode) else [node]:
            if not isinstance(value, yaml.MappingNode):
                raise ConfigError(
                    f"`<<` at {place} of the pipeline file merges what is not a mapping", code="TR-1004"
                )
            made = self.value(value, depth + 1)
            assert isinstance(made, Section)
            yield made


def _place(mark: yaml.Mark) -> str:
    return f"line {mark.line + 1}, column {mark.column + 1}"


def _control_characters() -> ConfigError:
    return ConfigError("the pipeline file is not YAML", "it holds control characters", code="TR-1002")


def _too_much(found: str) -> ConfigError:
    return ConfigError("the pipeline file is too large", found, code="TR-1003")

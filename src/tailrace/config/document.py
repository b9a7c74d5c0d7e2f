"""YAML text to plain values: strict, bounded, and with errors that show a place and never what stands there.

What stands at the place of an error may be a password: unquoted, `*x` is an alias, `!x` a tag and `x: y` a
key. PyYAML's own messages quote it, so only those of its words are shown that are always the same.

Anchors, aliases and merge keys are read, but what they make of a file is bounded: ten lines of them can
stand for more values than memory holds.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import yaml

from tailrace.errors import ConfigError

#: Most characters of a file.
MOST_CHARACTERS = 1 << 20
#: Most values of a file with its aliases written out, and how deep they may lie.
_MOST_VALUES = 100_000
_DEEPEST = 32
_MERGE = "tag:yaml.org,2002:merge"
_COLLECTIONS = ("tag:yaml.org,2002:map", "tag:yaml.org,2002:seq")
#: What PyYAML says that holds nothing of the file.
_FIXED = re.compile(
    r"mapping values are not allowed here|could not find expected ':'|found unexpected end of stream"
    r"|expected '?<[a-z ]+>'?, but found '?<[a-z ]+>'?"
)
_QUOTE = "put quotes around a value that holds one of * & ! % @ ` # : { } [ ]"


class Section(dict[str, Any]):
    """A mapping, and where in the file each of its keys stands."""

    def __init__(self) -> None:
        super().__init__()
        self.places: dict[str, str] = {}


def read_document(text: str) -> Any:
    """The value that the YAML `text` describes; mappings are `Section`.

    Raises:
        ConfigError: it is not YAML, a key stands twice in a mapping, or it is too large. Names the place.
    """
    if len(text) > MOST_CHARACTERS:
        raise ConfigError("the pipeline file is too large", f"needed: at most {MOST_CHARACTERS} characters")
    loader = yaml.SafeLoader(text)
    try:
        node = loader.get_single_node()
        return None if node is None else _Reader(loader).value(node, 0)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        said = error.problem or ""
        raise ConfigError(
            f"the pipeline file is not YAML{'' if mark is None else f' at {_place(mark)}'}",
            said if _FIXED.fullmatch(said) else None,
            _QUOTE,
        ) from None
    except yaml.YAMLError:
        raise ConfigError("the pipeline file is not YAML", "it holds control characters") from None
    except RecursionError:
        raise _too_much("it is nested too deeply") from None
    finally:
        loader.dispose()


class _Reader:
    """Makes values of nodes, and counts them."""

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
                raise ConfigError(f"the key at {place} of the pipeline file is no text")
            if key.value in made:
                raise ConfigError(
                    f"the key at {place} of the pipeline file is given twice",
                    f"the first is at {made.places[key.value]}",
                    "leave one of them out",
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
                raise ConfigError(f"`<<` at {place} of the pipeline file merges what is no mapping")
            made = self.value(value, depth + 1)
            assert isinstance(made, Section)
            yield made


def _place(mark: yaml.Mark) -> str:
    return f"line {mark.line + 1}, column {mark.column + 1}"


def _too_much(found: str) -> ConfigError:
    return ConfigError("the pipeline file is too large", found)

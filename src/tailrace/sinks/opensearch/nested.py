"""Nested tables: the rows of a child in the documents of their parents. Pure.

docs/design/0013-nested-documents.md tells why they are exact.

A child's rows have documents of their own, too, each with the field `_tailrace_parent`: the values of the
columns that refer to its parent, as one text. The columns are of the child's key, and name the parent's whole
key. So a child's parent cannot change, and the parents that a batch affects follow from its changes' keys.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tailrace.config.sinks import NestedTable
from tailrace.errors import SinkError
from tailrace.sinks.replica.target_schema import TargetSchema

_INTEGERS = {"int8", "int16", "int32", "int64"}


@dataclass(frozen=True)
class Link:
    """How a child refers to its parent.

    Args:
        parent: the parent's target.
        child: the child's target.
        field: the field of the parent's documents that holds the child's rows.
        columns: the child's columns that refer to the parent.
        key: the parent's columns that they refer to: its key, in some order.
    """

    parent: str
    child: str
    field: str
    columns: tuple[str, ...]
    key: tuple[str, ...]

    @classmethod
    def of(cls, given: NestedTable) -> Link:
        """That of a setting."""
        return cls(
            given.parent, given.child, given.field, tuple(given.columns), tuple(given.columns.values())
        )

    def to_json(self) -> dict[str, Any]:
        """It as JSON."""
        return {**self.__dict__, "columns": list(self.columns), "key": list(self.key)}

    @classmethod
    def from_json(cls, noted: Mapping[str, Any]) -> Link:
        """The inverse of `to_json`."""
        return cls(**{**noted, "columns": tuple(noted["columns"]), "key": tuple(noted["key"])})

    def of_child(self, key: Sequence[str]) -> Link:
        """It with the names that the child's key has for its columns.

        Raises:
            SinkError: a column is none of the key.
        """
        names = {name.lower(): name for name in key}
        others = [name for name in self.columns if name.lower() not in names]
        if others:
            raise SinkError(
                f"the rows of target `{self.child}` cannot be nested by column `{others[0]}`",
                f"their key is ({', '.join(key)}). If the column of a row changed, its former parent would"
                " keep it: the log need not tell which one that is",
                "make the column a part of the key, by a transform of the table:"
                f" `primary-keys: [{', '.join((*others, *key))}]`",
                code="TR-7323",
            )
        return Link(
            self.parent, self.child, self.field, tuple(names[name.lower()] for name in self.columns), self.key
        )

    def of_parent(self, key: Sequence[str]) -> Link:
        """It with the names that the parent's key has.

        Raises:
            SinkError: the columns are not the parent's key.
        """
        names = {name.lower(): name for name in key}
        if sorted(name.lower() for name in self.key) != sorted(names):
            raise _not_nestable(
                self,
                f"`columns` names ({', '.join(self.key)}) of the parent, whose key is ({', '.join(key)})",
                "let `columns` name each column of the parent's key",
            )
        return Link(
            self.parent, self.child, self.field, self.columns, tuple(names[name.lower()] for name in self.key)
        )


def _not_nestable(link: Link, found: str, remedy: str) -> SinkError:
    return SinkError(
        f"the rows of target `{link.child}` cannot be nested in those of `{link.parent}`",
        found,
        remedy,
        code="TR-7323",
    )


def require_same_types(link: Link, parent: TargetSchema, child: TargetSchema) -> None:
    """Refuse columns whose values have other texts than those that they refer to.

    Raises:
        SinkError: their types differ.
    """
    of_parent, of_child = ({c.name.lower(): c for c in schema.columns} for schema in (parent, child))
    for column, key in zip(link.columns, link.key, strict=True):
        types = [str(of[name.lower()].type.arrow) for of, name in ((of_child, column), (of_parent, key))]
        if types[0] != types[1] and not set(types) <= _INTEGERS:
            raise _not_nestable(
                link,
                f"`{column}` is {types[0]}, and `{key}`, to which it refers, {types[1]}",
                "give the columns one type",
            )


def require_free_field(link: Link, parent: TargetSchema) -> None:
    """Refuse a field that is a column of the parent.

    Raises:
        SinkError: it is one.
    """
    if link.field.lower() in {column.name.lower() for column in parent.columns}:
        raise _not_nestable(
            link,
            f"the parent has a column `{link.field}`",
            "name another `field`",
        )


def shared_target(link: Link, target: str) -> SinkError:
    """The error for a target of several tables."""
    return _not_nestable(
        link,
        f"several tables share the target `{target}`",
        "route each to a target of its own",
    )


def require_same_links(target: str, index: str, held: Sequence[Link], needed: Sequence[Link]) -> None:
    """Refuse other links than those by which an index has been written.

    Raises:
        SinkError: they differ.
    """
    old, new = (sorted((x.child, x.parent, x.field, _folded(x)) for x in links) for links in (held, needed))
    if old != new:
        raise SinkError(
            f"the documents of target `{target}` are nested otherwise",
            "`sink.nested` has changed since its index was made",
            f"set it back; or delete the index `{index}` and read its table again: tailrace resync"
            " PIPELINE.YAML TABLE",
            code="TR-7324",
        )


def _folded(link: Link) -> list[tuple[str, str]]:
    return sorted((a.lower(), b.lower()) for a, b in zip(link.columns, link.key, strict=True))

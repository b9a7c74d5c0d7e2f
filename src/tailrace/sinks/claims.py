"""Claims on targets: two tables never share a target, unless the routes merge them.

Names that differ in a database may be equal in a target: Kafka turns `a b` and `a_b` into one topic, some
catalogs fold case, `$1_$2` loses the boundary between two names. Each sink gives the locations that a table's
changes go to; the first table to claim a location holds it. Tables found later, in a running stream, are
checked before any of their rows is written.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from tailrace.errors import ConfigError
from tailrace.model.table import TableId
from tailrace.sinks.route import Router

#: Gives the locations of a table's changes in a sink, which no other table may share.
Locations = Callable[[TableId], Iterable[str]]


class Claims:
    """The tables that hold the locations of a sink.

    Args:
        router: decides which tables share a target.
        locations: gives the locations of a table. A location inside another one (after a `/`) conflicts with
            it.
        reserved: locations that the sink itself needs, and their purpose.
        is_merged: whether the sink brings two tables with one location together itself.
    """

    def __init__(
        self,
        router: Router,
        locations: Locations,
        reserved: Mapping[str, str] | None = None,
        is_merged: Callable[[TableId, TableId], bool] = lambda *_: False,
    ) -> None:
        self.router = router
        self._locations = locations
        self._is_merged = is_merged
        self._reserved = dict(reserved or {})
        self._known: set[TableId] = set()
        self._by_target: dict[str, list[TableId]] = {}
        self._holders: dict[str, TableId] = {}
        #: By directory: a table that holds a location inside it.
        self._inside: dict[str, TableId] = {}

    @property
    def tables(self) -> list[TableId]:
        """The tables that hold locations."""
        return sorted(self._known)

    def of(self, target: str) -> list[TableId]:
        """The tables of a target, as far as they are known."""
        return sorted(self._by_target.get(target, ()))

    def add(self, tables: Iterable[TableId]) -> None:
        """Claim the locations of tables.

        Raises:
            ConfigError: a location is reserved, or another table holds it.
        """
        for table in tables:
            if table not in self._known:
                for location in self._locations(table):
                    self._claim(table, location)
                self._known.add(table)
                self._by_target.setdefault(self.router.target(table), []).append(table)

    def is_taken(self, location: str) -> bool:
        """Whether a location is reserved, or a table holds it."""
        return location in self._reserved or location in self._holders

    def share(self, table: TableId) -> bool:
        """Whether another table has the target of `table`, or may have had it before it left the stream."""
        target = self.router.target(table)
        known = self._by_target.get(target, [])
        return any(other != table for other in known) or self.router.brings_many_together(table)

    def _claim(self, table: TableId, location: str) -> None:
        if location in self._reserved:
            raise ConfigError(
                f"the target of {table.quoted} is {self._reserved[location]}",
                f"both are called `{location}`",
                _hint(table),
                code="TR-1506",
            )
        holder = self._holders.setdefault(location, table)
        together = self.router.are_brought_together(holder, table) or self._is_merged(holder, table)
        if holder != table and not together:
            raise _one_target(holder, table, f"both go to `{location}`")
        parents = [location[:end] for end, character in enumerate(location) if character == "/"]
        other = next((self._holders[path] for path in parents if path in self._holders), None)
        other = self._inside.get(location) if other is None else other
        if other is not None:
            raise _one_target(other, table, "the target of one lies inside that of the other")
        self._inside |= dict.fromkeys(parents, table)


def _one_target(one: TableId, other: TableId, why: str) -> ConfigError:
    return ConfigError(
        f"tables {one.quoted} and {other.quoted} would be mixed in one target",
        why,
        _hint(other),
        code="TR-1506",
    )


def _hint(table: TableId) -> str:
    return (
        f"route {table.quoted} to another target, or leave it out of `tables`; tables that are to share a"
        " target need one route, or routes with the same `sink-table`"
    )

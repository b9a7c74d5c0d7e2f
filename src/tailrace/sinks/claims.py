"""Two tables never have one target, unless the routes bring them together.

Names that a database tells apart may be one for a target: Kafka takes `a b` and `a_b` for one topic, some
catalogs fold case, `$1_$2` forgets where a name ended. Each sink says where a table's changes go; the first
table to be there holds the place. Tables that are met later, in a stream that runs, are looked at before any
of their rows is written.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from tailrace.errors import ConfigError
from tailrace.model.table import TableId
from tailrace.sinks.route import Router

#: What a sink calls the places of a table's changes, which no other table may share.
Places = Callable[[TableId], Iterable[str]]


class Claims:
    """Who holds which place of a sink.

    Args:
        router: says which tables share a target.
        places: of a table. A place below another one's, with a `/` between, cannot be held beside it.
        taken: places that the sink itself needs, and for what.
    """

    def __init__(self, router: Router, places: Places, taken: Mapping[str, str] | None = None) -> None:
        self.router = router
        self._places = places
        self._taken = dict(taken or {})
        self._known: set[TableId] = set()
        self._holders: dict[str, TableId] = {}
        #: Of places further down, the table that holds one of them.
        self._above: dict[str, TableId] = {}

    @property
    def tables(self) -> list[TableId]:
        """Those that hold places."""
        return sorted(self._known)

    def add(self, tables: Iterable[TableId]) -> None:
        """Let tables hold their places.

        Raises:
            ConfigError: a table cannot have its target, or another one has it.
        """
        for table in tables:
            if table not in self._known:
                for place in self._places(table):
                    self._hold(table, place)
                self._known.add(table)

    def _hold(self, table: TableId, place: str) -> None:
        if place in self._taken:
            raise ConfigError(
                f"the target of {table.quoted} is {self._taken[place]}",
                f"both are called `{place}`",
                _hint(table),
            )
        holder = self._holders.setdefault(place, table)
        if holder != table and not self.router.are_brought_together(holder, table):
            raise _one_target(holder, table, f"both go to `{place}`")
        above = [place[:end] for end, character in enumerate(place) if character == "/"]
        inside = next((self._holders[path] for path in above if path in self._holders), None)
        inside = self._above.get(place) if inside is None else inside
        if inside is not None:
            raise _one_target(inside, table, "the target of one lies inside that of the other")
        self._above |= dict.fromkeys(above, table)


def _one_target(one: TableId, other: TableId, why: str) -> ConfigError:
    return ConfigError(
        f"tables {one.quoted} and {other.quoted} would be mixed in one target", why, _hint(other)
    )


def _hint(table: TableId) -> str:
    return (
        f"route {table.quoted} to another target, or leave it out of `tables`; tables that are to share a"
        " target need one route, or routes with the same `sink-table`"
    )

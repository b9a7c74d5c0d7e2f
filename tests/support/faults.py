"""Disturbances of a server during writes: context managers over the server."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import contextmanager

from tailrace.repetition import repeatedly


@contextmanager
def late_standby(server) -> Iterator[None]:
    """PostgreSQL's commits are in the log but not visible, for up to 0.3 s each: no standby answers."""
    late = iter(itertools.cycle(("nobody", "")))

    def switch(to: str | None = None) -> None:
        server.execute(
            f"ALTER SYSTEM SET synchronous_standby_names = '{next(late) if to is None else to}'",
            "SELECT pg_reload_conf()",
        )

    with repeatedly(switch, 0.15):
        yield
    switch("")


@contextmanager
def lost_connections(server) -> Iterator[None]:
    """End all of the stream's connections to a PostgreSQL server, four times."""
    left = iter(range(4))

    def end_all() -> None:
        if next(left, None) is not None:
            server.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'tailrace'"
            )

    with repeatedly(end_all, 1.0):
        yield

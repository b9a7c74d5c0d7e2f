"""Pipelines run as users with the privileges that docs/guides name, and no others."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tailrace.config.load import parse_pipeline
from tailrace.config.model import Pipeline
from tailrace.pipeline.supervisor import Supervisor, read_cells
from tailrace.sinks.registry import make_sinks
from tailrace.sources import registry
from tailrace.sources.preflight import errors, render
from tailrace.verify.run import verify

#: The documented privileges of a user of each product; {source} and {target} are databases.
CAPTURES = {
    "mysql": (
        "CREATE USER {user} IDENTIFIED BY 'secret'",
        "GRANT SELECT ON {source}.* TO {user}",
        "GRANT REPLICATION SLAVE, REPLICATION CLIENT ON *.* TO {user}",
    ),
    "mariadb": (
        "CREATE USER {user} IDENTIFIED BY 'secret'",
        "GRANT SELECT ON {source}.* TO {user}",
        "GRANT REPLICATION SLAVE, BINLOG MONITOR ON *.* TO {user}",
    ),
    "postgres": (
        "CREATE ROLE {user} LOGIN REPLICATION PASSWORD 'secret'",
        "REVOKE ALL ON DATABASE {source} FROM PUBLIC",
        "GRANT CONNECT ON DATABASE {source} TO {user}",
        "REVOKE ALL ON SCHEMA public FROM PUBLIC",
        "GRANT USAGE ON SCHEMA public TO {user}",
        "GRANT SELECT ON t, u TO {user}",
        "CREATE PUBLICATION {user} FOR TABLE t, u WITH (publish_via_partition_root = true)",
    ),
}
_WRITES = "SELECT, INSERT, UPDATE, DELETE, CREATE, DROP, ALTER, CREATE TEMPORARY TABLES"
_REPLICA = ("CREATE USER {user} IDENTIFIED BY 'secret'", f"GRANT {_WRITES} ON {{target}}.* TO {{user}}")
REPLICATES = {
    "mysql": _REPLICA,
    "mariadb": _REPLICA,
    "postgres": (
        "CREATE ROLE {user} LOGIN PASSWORD 'secret'",
        "REVOKE ALL ON DATABASE {target} FROM PUBLIC",
        "GRANT CONNECT, TEMPORARY ON DATABASE {target} TO {user}",
        "REVOKE ALL ON SCHEMA public FROM PUBLIC",
        "GRANT USAGE, CREATE ON SCHEMA public TO {user}",
    ),
}
TABLES = (
    "CREATE TABLE t (id int PRIMARY KEY, v varchar(20), big text)",
    "CREATE TABLE u (a int, b varchar(9), n decimal(10, 2), PRIMARY KEY (a, b))",
    "INSERT INTO t VALUES (1, 'a', 'x'), (2, 'b', 'y'), (3, 'c', 'z'), (4, NULL, NULL)",
    "INSERT INTO u VALUES (1, 'a', 1.5), (2, 'b', 2.5)",
)
CHANGES = (
    "UPDATE t SET v = 'changed' WHERE id < 3",
    "DELETE FROM t WHERE id = 3",
    "INSERT INTO t VALUES (5, 'e', 'new')",
    "UPDATE u SET a = 9 WHERE a = 2",
)


@dataclass
class Pair:
    """A captured database and the replica's, each with a user of its own."""

    server: Any
    source: str
    target: str

    def execute(self, database: str, *statements: str) -> None:
        """Run statements as the administrator."""
        if self.server.product == "postgres":
            self.server.execute(*statements, database=database)
        else:
            self.server.execute(f"USE {database}", *statements)

    @property
    def capturer(self) -> str:
        """The user that captures."""
        return f"c_{self.source[2:]}"

    @property
    def replicator(self) -> str:
        """The user that writes the replica."""
        return f"r_{self.source[2:]}"

    def grant(self) -> None:
        """Create the users."""
        for user, database, statements in (
            (self.capturer, self.source, CAPTURES),
            (self.replicator, self.target, REPLICATES),
        ):
            given = {"user": user, "source": self.source, "target": self.target}
            self.execute(database, *(s.format(**given) for s in statements[self.server.product]))
        if self.server.product == "mysql" and self._has_seen_xa():
            self.execute(self.source, f"GRANT XA_RECOVER_ADMIN ON *.* TO {self.capturer}")

    def _has_seen_xa(self) -> bool:
        """Whether another test has used XA transactions on this server, which needs one more privilege."""
        ((_, count),) = self.server.execute("SHOW GLOBAL STATUS LIKE 'Com_xa_start'")
        return int(count) > 0

    def pipeline(self, path: Path) -> Pipeline:
        """The pipeline from one to the other."""
        where = f"{self.server.scheme}://{self.server.host}:{self.server.port}"
        if self.server.product == "postgres":
            source = (
                f"url: '{where}/{self.source}', tables: 'public.*', slot-name: slot_{self.source},"
                f" publication-name: {self.capturer}"
            )
            sink, kind, pattern = f"url: '{where}/{self.target}'", "postgresql", r"public\.(\w+)"
            route = "public.$1"
        else:
            source = f"url: '{where}', tables: '{self.source}[.]\\w+'"
            sink, kind, pattern = f"url: '{where}/{self.target}'", "mysql", rf"{self.source}\.(\w+)"
            route = f"{self.target}.$1"
        return parse_pipeline(
            f"source: {{{source}, user: {self.capturer}, password: secret, snapshot-chunk-rows: 2}}\n"
            f"sink: {{type: {kind}, {sink}, user: {self.replicator}, password: secret}}\n"
            f"route: [{{source-table: '{pattern}', sink-table: '{route}'}}]\n"
            f"pipeline: {{trigger: available-now, checkpoint: '{path}'}}\n"
        )


@pytest.fixture(params=["mysql", "mariadb", "postgres"])
def pair(request: pytest.FixtureRequest) -> Iterator[Pair]:
    product = request.param
    server = request.getfixturevalue(product)
    names = {"mysql": "database", "mariadb": "mariadb_database", "postgres": "postgres_database"}
    source = request.getfixturevalue(names[product])
    found = Pair(server, source, f"{source}_r")
    server.execute(f"CREATE DATABASE {found.target}")
    yield found
    if product == "postgres":
        server.drop_database(found.source)
        server.drop_database(found.target)
    else:
        server.execute(f"DROP DATABASE {found.target}")
    role = "ROLE" if product == "postgres" else "USER"
    server.execute(f"DROP {role} IF EXISTS {found.capturer}", f"DROP {role} IF EXISTS {found.replicator}")


class _Quiet:
    def on_progress(self, progress: Any) -> None: ...

    def on_written(self, batch_id: int, written: Any) -> None: ...

    def on_restart(self, error: Any, attempt: int, pause_s: float) -> None:
        raise AssertionError(error)

    def on_batch(self, run: Any) -> None: ...

    def on_trouble(self, error: Any) -> None: ...

    def on_step(self, step: str) -> None: ...

    def on_notice(self, text: str) -> None: ...


def test_named_privileges_take_a_pipeline_from_snapshot_to_verify(pair: Pair, spark, tmp_path) -> None:
    pair.execute(pair.source, *TABLES)
    pair.grant()
    if pair.server.product == "postgres":
        pair.execute(pair.source, *(f"ALTER TABLE {t} REPLICA IDENTITY FULL" for t in ("t", "u")))
    pipeline = pair.pipeline(tmp_path)
    findings = registry.check(pipeline.source)
    assert not errors(findings), render(findings)

    def run() -> None:
        sink = make_sinks(pipeline)
        try:
            Supervisor(lambda: read_cells(spark, pipeline), pipeline, sink, _Quiet(), threading.Event()).run()
        finally:
            sink.close()

    run()
    pair.execute(pair.source, *CHANGES)
    run()
    report = verify(pipeline, spark)
    assert report.equal, report
    assert sorted(t.source_rows for t in report.targets) == [2, 4]


@pytest.mark.parametrize("pair", ["mysql", "mariadb"], indirect=True)
def test_hints_and_check_ask_for_select_on_what_is_captured_only(pair: Pair) -> None:
    pair.execute(pair.source, *TABLES)
    pair.execute(pair.source, f"CREATE USER {pair.capturer} IDENTIFIED BY 'secret'")
    pair.execute(pair.source, f"GRANT INSERT ON {pair.source}.t TO {pair.capturer}")
    findings = errors(registry.check(pair.pipeline(Path("/nowhere")).source))
    asked = " ".join(f.remedy for f in findings)
    assert "SELECT ON *.*" not in asked
    assert f"GRANT SELECT ON `{pair.source}`." in asked

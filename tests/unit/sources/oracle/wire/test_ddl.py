"""Which statements of a table keep earlier changes of its rows from being described."""

from __future__ import annotations

import pytest

from tailrace.model.table import TableId
from tailrace.sources.oracle.wire.ddl import behind, ddl_of

T = TableId("S", "T")


@pytest.mark.parametrize(
    ("sql", "alters", "kind"),
    [
        ('ALTER TABLE "S"."T" ADD (x NUMBER)', True, ""),
        ("alter table t modify x number(5)", True, ""),
        ("alter table t move", True, ""),
        ("ALTER TABLE t DROP SUPPLEMENTAL LOG DATA (ALL) COLUMNS", True, ""),
        ("ALTER TABLE s.t ADD SUPPLEMENTAL LOG DATA (ALL) COLUMNS", False, ""),
        ("/* x */ TRUNCATE TABLE t", True, "TRUNCATE"),
        ("-- x\ndrop table t purge", True, "DROP"),
        ("RENAME t TO u", True, ""),
        ("FLASHBACK TABLE t TO BEFORE DROP", True, ""),
        ("CREATE TABLE t (x NUMBER)", False, ""),
        ("create index i on t (x)", False, ""),
        ("CREATE UNIQUE INDEX i ON t (x)", False, ""),
        ("drop index i", False, ""),
        ("GRANT SELECT ON t TO u", False, ""),
        ("COMMENT ON TABLE t IS 'x'", False, ""),
        ("CREATE OR REPLACE TRIGGER r BEFORE INSERT ON t", False, ""),
        ("something new", True, ""),
    ],
)
def test_kinds_of_statements(sql: str, alters: bool, kind: str) -> None:
    found = ddl_of(1, ("", 0), T, sql, 0)
    assert (found.alters, found.kind) == (alters, kind)


def test_schema_changes_behind_an_scn() -> None:
    ddls = [
        ddl_of(scn, ("", 0), table, "DROP TABLE t", 0)
        for scn, table in ((9, T), (5, T), (7, TableId("S", "U")))
    ]
    assert [d.scn for d in behind(5, ddls, T)] == [9]
    assert [d.scn for d in behind(4, ddls, T)] == [5, 9]

"""Records streams, a COPY and the catalog from a real server: `python -m tests.golden.postgres.record`."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

from tailrace.sources.postgres.wire.kernels.copy import copy_columns
from tailrace_dev.servers.postgres import start_postgres
from tests.support.pgcatalog import schema_of, types_of
from tests.support.pgwire import Wire

HERE = Path(__file__).parent
TABLES = ("t", "whole", "nokey", "toast")
#: What a session asks for, by the name of its recording.
STREAMS = {
    "binary": ("plain", {"binary": "true"}),
    "text": ("plain", {"binary": "false"}),
    "streamed": ("plain", {"binary": "true", "proto_version": "4", "streaming": "on", "messages": "true"}),
    "prepared": (
        "two_phase",
        {"binary": "true", "proto_version": "4", "streaming": "on", "two_phase": "true", "messages": "true"},
    ),
}

SETUP = """
CREATE EXTENSION IF NOT EXISTS vector;
CREATE TYPE mood AS ENUM ('sad', 'happy');
CREATE DOMAIN cents AS numeric(10, 2);
CREATE TYPE pair AS (a int, b text);
CREATE TABLE t (
    id int PRIMARY KEY, b bool, i2 int2, i8 int8, o oid, f4 float4, f8 float8, n numeric, d numeric(12, 3),
    m money, c char(4), v varchar(9), x text, y bytea, da date, ti time, tz timetz, ts timestamp(3),
    tsz timestamptz, iv interval, u uuid, j json, jb jsonb, a int[], ta text[], net inet, ci cidr, ma macaddr,
    bt bit(3), vb varbit, md mood, ct cents, ve vector(3), bb bit
);
CREATE TABLE whole (id int, v text, big text);
ALTER TABLE whole REPLICA IDENTITY FULL;
CREATE TABLE nokey (v text);
CREATE TABLE toast (id int PRIMARY KEY, n int, big text);
ALTER TABLE toast ALTER big SET STORAGE EXTERNAL;
ALTER TABLE whole ALTER big SET STORAGE EXTERNAL;
CREATE TABLE other (id int PRIMARY KEY);
CREATE PUBLICATION p FOR TABLE t, whole, nokey, toast, other;
SELECT pg_create_logical_replication_slot('plain', 'pgoutput');
SELECT pg_create_logical_replication_slot('two_phase', 'pgoutput', twophase => true);
"""

_ROW = (
    "true, -2, 9223372036854775807, 4294967295, 1.1, -0.1, 'NaN', 12345.678, -1234.5, 'ab', 'vär', "
    "'te\tx\"t', '\\x00ff', '2024-02-29', '24:00:00', '12:00:00.5+05:30', '2024-01-01 01:02:03.456', "
    "'2024-01-01 00:00:00.000001+02', '1 year 2 mons -3 days 04:05:06.7', "
    "'11111111-2222-3333-4444-555555555555', '{\"a\": 1}', '{\"a\": [1, 2]}', '{1,NULL,3}', "
    "'{a,\"b,c\",NULL,\"q\\\"\\\\\",\"\"}', '10.1.2.3/8', '2001:db8::/32', '08:00:2b:01:02:03', '101', "
    "'10110', 'happy', 1.25, '[1,-2.5,3e10]', '1'"
)
_ODD = (
    "NULL, NULL, NULL, NULL, 'Infinity', 'NaN', '-0.00000000000000000012345', NULL, NULL, NULL, '', '', '', "
    "'-infinity', '00:00:00', '00:00:00-15:59:59', 'infinity', '-infinity', '00:00:00', NULL, NULL, NULL, "
    "'{}', '{}', '::ffff:1.2.3.4', '0.0.0.0/0', NULL, NULL, '', NULL, NULL, NULL, NULL"
)
_BC = "'4713-01-01 BC'"

WORK = (
    f"INSERT INTO t VALUES (1, {_ROW}), (2, {_ODD})",
    f"INSERT INTO t (id, da, ts, tsz) VALUES (3, {_BC}, {_BC}, '0001-12-31 23:59:59+00 BC')",
    "UPDATE t SET x = 'new' WHERE id = 1",
    "UPDATE t SET id = 10 WHERE id = 1",
    "DELETE FROM t WHERE id = 2",
    "INSERT INTO whole VALUES (1, 'a', repeat('w', 5000)), (2, NULL, NULL)",
    "UPDATE whole SET v = 'b'",
    "DELETE FROM whole WHERE id = 2",
    "INSERT INTO nokey VALUES ('only'), ('inserts')",
    "INSERT INTO toast VALUES (1, 1, repeat('x', 5000)), (2, 2, 'small'), (3, 3, repeat('y', 5000))",
    "UPDATE toast SET n = n + 10",
    "UPDATE toast SET id = 30 WHERE id = 3",
    "UPDATE toast SET big = repeat('z', 4000) WHERE id = 1",
    "INSERT INTO other VALUES (1)",
    (
        "BEGIN; INSERT INTO nokey VALUES ('kept'); SAVEPOINT s; INSERT INTO nokey VALUES ('undone'); "
        "ROLLBACK TO s; INSERT INTO nokey VALUES ('kept too'); COMMIT"
    ),
    "BEGIN; INSERT INTO nokey VALUES ('rolled back'); ROLLBACK",
    "BEGIN; INSERT INTO nokey VALUES ('prepared'); INSERT INTO other VALUES (2); PREPARE TRANSACTION 'one'",
    "INSERT INTO nokey VALUES ('between')",
    "COMMIT PREPARED 'one'",
    "BEGIN; INSERT INTO nokey VALUES ('vanishes'); PREPARE TRANSACTION 'two'",
    "ROLLBACK PREPARED 'two'",
    "SELECT pg_logical_emit_message(true, 'pre', 'inside')",
    "SELECT pg_logical_emit_message(false, 'pre', 'outside')",
    "ALTER TABLE nokey ADD COLUMN w int[] DEFAULT '{7}'",
    "INSERT INTO nokey VALUES ('wider', '{1,2}')",
    "TRUNCATE nokey, other",
    "INSERT INTO toast SELECT g, g, 'many' FROM generate_series(100, 139) g",
)


def main() -> None:
    with start_postgres("18", options={"max_prepared_transactions": "10"}) as server:
        with Wire(server.host, server.port, server.password) as wire:
            for statement in filter(str.strip, SETUP.split(";\n")):
                wire.rows(statement)
            catalog = {
                "types": [dataclasses.astuple(t) for t in types_of(wire, TABLES)],
                "shapes": [schema_of(wire, table).to_json() for table in TABLES],
            }
            for statement in WORK:
                for part in statement.split("; "):
                    wire.rows(part)
            ((end,),) = wire.rows("SELECT pg_current_wal_insert_lsn() - '0/0'::pg_lsn")
            schema = schema_of(wire, "t")
            statement = f"COPY (SELECT {copy_columns(schema)} FROM t ORDER BY id) TO STDOUT (FORMAT binary)"
            (HERE / "t.copy").write_bytes(wire.copy(statement))
        (HERE / "catalog.json").write_text(json.dumps(catalog, indent=1) + "\n")
        for name, (slot, options) in STREAMS.items():
            streamed = {"debug_logical_replication_streaming": "immediate"} if "streaming" in options else {}
            with Wire(server.host, server.port, server.password, replication=True, settings=streamed) as wire:
                (HERE / f"{name}.stream").write_bytes(wire.replicate(slot, "p", int(end or 0), **options))


if __name__ == "__main__":
    main()

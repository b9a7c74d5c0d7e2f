"""Whatever a file holds, the readers raise errors of ours alone, and what they make loads."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.config.importing import canal, debezium, debezium_offsets, flink_cdc, flink_sql, seatunnel
from tailrace.config.importing.draft import Draft, DraftEntry
from tailrace.errors import ConfigError

READERS: dict[str, Callable[[str], object]] = {
    "canal": lambda text: canal.draft(canal.read(text, text), "x"),
    "debezium": lambda text: debezium.draft(debezium.read(text, "x")),
    "flink_cdc": lambda text: flink_cdc.draft(text, "x"),
    "flink_sql": lambda text: flink_sql.draft(text, "x"),
    "seatunnel": lambda text: seatunnel.draft(text, "x"),
}
#: Pieces that get a reader further than letters would.
PIECES = [
    *(
        "{",
        "}",
        "[",
        "]",
        "(",
        ")",
        "<",
        ">",
        ",",
        ":",
        "=",
        "+=",
        ";",
        "'",
        '"',
        '"""',
        "`",
        "\\",
        "\n",
        " ",
        "#",
    ),
    *(
        "$",
        "${a}",
        ".",
        "*",
        "|",
        "|>",
        "- ",
        "--",
        "/*",
        "*/",
        "//",
        "a",
        "b.c",
        "1",
        "null",
        "true",
        "\u0663",
        "\x00",
    ),
    *("source", "sink", "transform", "route", "pipeline", "env", "MySQL-CDC", "Postgres-CDC", "type: mysql"),
    *("CREATE TABLE t (", ") WITH ('connector' = 'mysql-cdc'", "'database-name' = 'd', 'table-name' = 't'"),
    *(
        "connector.class=io.debezium.connector.mysql.MySqlConnector\n",
        "database.hostname=h\n",
        "topic.prefix=p\n",
    ),
    *(
        "database.user=u\n",
        "transforms=a,b\n",
        "transforms.a.type=",
        "table.include.list=",
        "canal.instance.",
    ),
    *("canal.instance.master.address=h:1\n", "canal.instance.dbUsername=u\n", "canal.instance.filter.field="),
    *('url = "jdbc:mysql://h:1/d"', "username = u", 'table-names = ["a.b"]', '"plugin_name": "MySQL-CDC"'),
]


@pytest.mark.parametrize("reader", READERS)
@given(pieces=st.lists(st.sampled_from(PIECES), max_size=25))
def test_reader_of_any_text_raises_no_other_error(reader: str, pieces: list[str]) -> None:
    with suppress(ConfigError):
        READERS[reader]("".join(pieces))


@given(
    pieces=st.lists(st.sampled_from(PIECES), max_size=10), head=st.sampled_from(["", "\xac\xed\x00\x05", "{"])
)
def test_reader_of_any_offsets_raises_no_other_error(pieces: list[str], head: str) -> None:
    made = Draft(
        "Debezium", "x", source={"type": DraftEntry("mysql"), "starting-position": DraftEntry("initial")}
    )
    blocks = "uq\x00~\x00\x02\x00\x00\x00\x04null"
    for content in ("".join([head, *pieces]), "".join([head, blocks, *pieces, blocks])):
        with suppress(ConfigError):
            debezium_offsets.start(made, content.encode("latin-1", "replace"), "p")

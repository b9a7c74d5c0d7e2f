"""Statements that each session with the source begins with (`database.initial.statements`).

Debezium runs any statement. A session's settings may change what is read: `sql_select_limit` loses rows,
`max_sort_length` changes the order in which pages follow each other, `DateStyle` the text of a date. So only
roles are allowed, and settings of how the server executes statements.
"""

from __future__ import annotations

import re

_OF_MYSQL = frozenset(
    {
        "group_replication_consistency",
        "join_buffer_size",
        "join_cache_level",
        "max_heap_table_size",
        "optimizer_prune_level",
        "optimizer_search_depth",
        "optimizer_switch",
        "read_buffer_size",
        "read_rnd_buffer_size",
        "sort_buffer_size",
        "tmp_table_size",
        "wsrep_sync_wait",
    }
)
_OF_POSTGRES = frozenset(
    {
        "application_name",
        "cursor_tuple_fraction",
        "effective_cache_size",
        "effective_io_concurrency",
        "hash_mem_multiplier",
        "jit",
        "log_min_duration_statement",
        "log_statement",
        "max_parallel_workers_per_gather",
        "random_page_cost",
        "seq_page_cost",
        "temp_buffers",
        "work_mem",
    }
)
_NAME = r"(?:[\w$-]+|`[^`]+`|\"[^\"]+\"|'[^'\\]+')"
_ROLE = re.compile(rf"SET\s+ROLE\s+{_NAME}(?:@{_NAME})?", re.IGNORECASE)
_GROUP = re.compile(rf"SET\s+RESOURCE\s+GROUP\s+{_NAME}", re.IGNORECASE)
_SETTING = re.compile(
    r"SET\s+(?:SESSION\s+|LOCAL\s+|@@session\.|@@)?(\w+)\s*(?::?=|\sTO\s)\s*(?:'[^'\\]*'|[\w.+-]+)",
    re.IGNORECASE,
)


def session_statements(text: str) -> tuple[str, ...]:
    """Statements, separated by semicolons; two of them stand for one in a statement.

    Raises:
        ValueError: there is none.
    """
    parts = (part.replace("\0", ";").strip() for part in text.replace(";;", "\0").split(";"))
    statements = tuple(part for part in parts if part)
    if not statements:
        raise ValueError
    return statements


def allowed_settings(dialect: str) -> list[str]:
    """The settings that a session of a database may begin with."""
    return sorted(_OF_POSTGRES if dialect == "postgresql" else _OF_MYSQL)


def is_allowed(statement: str, dialect: str) -> bool:
    """Whether a session may begin with a statement."""
    if _ROLE.fullmatch(statement) or (dialect == "mysql" and _GROUP.fullmatch(statement)):
        return True
    match = _SETTING.fullmatch(statement)
    return match is not None and match[1].lower() in allowed_settings(dialect)

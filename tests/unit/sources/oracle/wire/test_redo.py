"""SQL_REDO: what is written by LogMiner's rules is read as it was, and everything else is refused."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tailrace.errors import DecodeError
from tailrace.sources.oracle.wire.redo import DELETE, INSERT, UPDATE, Literal, RowStatement, parse

#: Names in quotes: any character but a quote and NUL.
NAMES = st.text(
    st.characters(blacklist_characters='"\0', blacklist_categories=["Cs"]), min_size=1, max_size=12
)
TEXTS = st.text(st.characters(blacklist_categories=["Cs"]), max_size=30)
FUNCTIONS = ("TO_DATE", "TO_TIMESTAMP", "TO_TIMESTAMP_TZ", "TO_TIMESTAMP_ITZ", "HEXTORAW")


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _unistr(text: str) -> str:
    units = text.encode("utf-16-be").hex()
    return "UNISTR('" + "".join(f"\\{units[i : i + 4]}" for i in range(0, len(units), 4)) + "')"


def _written() -> st.SearchStrategy[tuple[str, Literal | None]]:
    """A value as LogMiner writes it, and what it is."""
    return st.one_of(
        st.just(("NULL", None)),
        TEXTS.map(lambda t: (_quoted(t), Literal(t))),
        TEXTS.map(lambda t: (_unistr(t), Literal(t))),
        st.tuples(TEXTS, TEXTS).map(lambda p: (f"{_unistr(p[0])} || {_unistr(p[1])}", Literal("".join(p)))),
        st.tuples(TEXTS, TEXTS).map(lambda p: (f"{_quoted(p[0])}||{_unistr(p[1])}", Literal("".join(p)))),
        st.integers().map(lambda n: (str(n), Literal(str(n), is_number=True))),
        st.tuples(st.sampled_from(FUNCTIONS), TEXTS).map(
            lambda p: (f"{p[0]}({_quoted(p[1])})", Literal(p[1], p[0]))
        ),
        TEXTS.map(lambda t: (f"TO_DATE({_quoted(t)}, 'SYYYY-MM-DD HH24:MI:SS')", Literal(t, "TO_DATE"))),
        st.sampled_from(["EMPTY_CLOB", "EMPTY_BLOB"]).map(lambda f: (f"{f}()", Literal("", f))),
    )


ROWS = st.dictionaries(NAMES, _written(), min_size=1, max_size=5)


def _name(name: str) -> str:
    return '"' + name + '"'


def _where(row: dict[str, tuple[str, Any]]) -> str:
    return " and ".join(
        f"{_name(n)} IS NULL" if value is None else f"{_name(n)} = {text}" for n, (text, value) in row.items()
    )


def _values(row: dict[str, tuple[str, Any]]) -> dict[str, Any]:
    return {name: value for name, (_, value) in row.items()}


@given(NAMES, NAMES, ROWS, st.sampled_from(["", ";"]))
def test_an_insert_is_read_as_it_was_written(owner: str, table: str, row: dict[str, Any], end: str) -> None:
    names = ",".join(map(_name, row))
    values = ",".join(text for text, _ in row.values())
    sql = f"insert into {_name(owner)}.{_name(table)}({names}) values ({values}){end}"
    assert parse(sql) == RowStatement(INSERT, owner, table, _values(row), {})


@given(NAMES, NAMES, ROWS, ROWS)
def test_an_update_is_read_as_it_was_written(owner: str, table: str, new: dict, old: dict) -> None:
    sets = ", ".join(f"{_name(n)} = {text}" for n, (text, _) in new.items())
    sql = f"update {_name(owner)}.{_name(table)} set {sets} where {_where(old)}"
    assert parse(sql) == RowStatement(UPDATE, owner, table, _values(new), _values(old))


@given(NAMES, NAMES, ROWS, st.booleans())
def test_a_delete_is_read_as_it_was_written(owner: str, table: str, old: dict, with_row_id: bool) -> None:
    row_id = " and ROWID = 'AAAR3xAAEAAAACXAAA'" if with_row_id else ""
    sql = f"delete from {_name(owner)}.{_name(table)} where {_where(old)}{row_id}"
    assert parse(sql) == RowStatement(DELETE, owner, table, {}, _values(old))


@given(st.text(max_size=60))
@example('insert into "S"."T"("A") values (\'1\'')
@example('update "S"."T" set "A" = \'1\'')
@example('delete from "S"."T" where "A" = \'1\' or "B" = \'2\'')
@example('insert into "S"."T"("A","A") values (\'1\',\'2\')')
@example('insert into "S"."T"("A","B") values (\'1\')')
@example('update "S"."T" set "A" = SYSDATE where "A" = \'1\'')
@example('update "S"."T" set COL 1 = HEXTORAW(\'c102\') where "A" = \'1\'')
@example('delete from "S"."T" where "A" = \'1\'; drop table t')
@example('insert into "S"."T"("A") values (UNISTR(\'\\D83D\'))')
def test_what_is_no_such_statement_is_refused_and_not_shown(sql: str) -> None:
    with pytest.raises(DecodeError) as raised:
        parse(sql)
    assert raised.value.code == "TR-4614"
    assert "c102" not in str(raised.value)


@pytest.mark.parametrize(
    ("text", "literal"),
    [
        ("'a''b'", Literal("a'b")),
        ("''", Literal("")),
        ("N'x'", Literal("x")),
        ("-1.5E-10", Literal("-1.5E-10", is_number=True)),
        (".5", Literal(".5", is_number=True)),
        (r"UNISTR('a\\b\00e9')", Literal("a\\bé")),
        (r"UNISTR('\D83D') || UNISTR('\DE00')", Literal("😀")),
        ("UNISTR('(x)')", Literal("(x)")),
        ("Unsupported Type", Literal("", "UNSUPPORTED")),
        ("Nan", Literal("NAN", is_number=True)),
    ],
)
def test_forms_of_values(text: str, literal: Literal) -> None:
    assert parse(f'insert into "S"."T"("A") values ({text})').values == {"A": literal}

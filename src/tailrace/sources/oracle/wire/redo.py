r"""SQL_REDO: the statements by which LogMiner describes changes of rows. Pure.

    insert into "S"."T"("A","B") values ('1',TO_DATE('2026-01-31 12:00:00', 'YYYY-MM-DD HH24:MI:SS'))
    update "S"."T" set "B" = NULL where "A" = '1' and "B" IS NULL
    delete from "S"."T" where "A" = '1' and "B" = HEXTORAW('00ff')

Only this grammar is accepted. What a value says is kept apart from what it is: `Literal` has the function
around a text, and `wire.values` decides by the column's type whether it may be there. A statement that is not
of the grammar is an error, and its text, which holds values, is never shown.

Source: Oracle Database Utilities 19c, "Using LogMiner to Analyze Redo Log Files"; SQL Language Reference,
"Text Literals", "UNISTR".
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from tailrace.errors import DecodeError

INSERT, UPDATE, DELETE = "insert", "update", "delete"

_TOKEN = re.compile(
    r"""\s*(?:
        (?P<name>"(?:[^"]|"")+")
      | (?P<text>[nN]?'(?:[^']|'')*')
      | (?P<number>[+-]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?[fFdD]?)
      | (?P<join>\|\|)
      | (?P<word>[A-Za-z_][A-Za-z_0-9$\#]*)
      | (?P<sign>[.,()=;])
    )""",
    re.VERBOSE | re.DOTALL,
)
#: Functions of one text, with the format that may follow it.
_OF_ONE_TEXT = frozenset(
    ["TO_DATE", "TO_TIMESTAMP", "TO_TIMESTAMP_TZ", "TO_TIMESTAMP_ITZ", "HEXTORAW", "UNISTR", "TO_NUMBER"]
)
_EMPTY = frozenset(["EMPTY_CLOB", "EMPTY_BLOB"])
_ESCAPE = re.compile(r"\\(\\|[0-9A-Fa-f]{4})")


@dataclass(frozen=True, slots=True)
class Literal:
    """A value other than NULL.

    Args:
        text: what it says, unquoted.
        function: the function around it, in upper case; "" for a text, or a number.
        is_number: whether it is written as a number.
    """

    text: str
    function: str = ""
    is_number: bool = False


#: Values by column; None: NULL.
Values = Mapping[str, Literal | None]


@dataclass(frozen=True, slots=True)
class RowStatement:
    """One change of one row.

    Args:
        kind: INSERT, UPDATE or DELETE.
        owner: the table's schema.
        table: its name.
        values: of an insert the row, of an update the changed columns.
        where: of an update or delete the row before.
    """

    kind: str
    owner: str
    table: str
    values: Values
    where: Values


def parse(sql: str) -> RowStatement:
    """The change that a statement of LogMiner describes.

    Raises:
        DecodeError: it is not such a statement.
    """
    return _Parser(sql).statement()


class _Parser:
    """A statement, read from left to right."""

    def __init__(self, sql: str) -> None:
        self._sql = sql
        self._at = 0
        self._kind, self._text = "", ""
        self._advance()

    def statement(self) -> RowStatement:
        kind = self._text.lower() if self._kind == "word" else ""
        self._advance()
        if kind == INSERT:
            self._word("INTO")
            owner, table = self._table()
            found = RowStatement(kind, owner, table, self._inserted(), {})
        elif kind == UPDATE:
            owner, table = self._table()
            self._word("SET")
            values = self._assignments(",")
            self._word("WHERE")
            found = RowStatement(kind, owner, table, values, self._assignments("AND"))
        elif kind == DELETE:
            self._word("FROM")
            owner, table = self._table()
            self._word("WHERE")
            found = RowStatement(kind, owner, table, {}, self._assignments("AND"))
        else:
            raise self._error("an INSERT, UPDATE or DELETE")
        if self._text == ";":
            self._advance()
        if self._kind != "end":
            raise self._error("its end")
        return found

    def _table(self) -> tuple[str, str]:
        owner = self._name()
        self._sign(".")
        return owner, self._name()

    def _inserted(self) -> dict[str, Literal | None]:
        names = []
        self._sign("(")
        while True:
            names.append(self._name())
            if not self._skips(","):
                break
        self._sign(")")
        self._word("VALUES")
        self._sign("(")
        values = []
        while True:
            values.append(self._value())
            if not self._skips(","):
                break
        self._sign(")")
        if len(names) != len(values) or len({*names}) != len(names):
            raise self._error("one value for each column")
        return dict(zip(names, values, strict=True))

    def _assignments(self, between: str) -> dict[str, Literal | None]:
        """`"A" = value`, `"A" IS NULL`, joined by `,` or AND."""
        found: dict[str, Literal | None] = {}
        while True:
            if between == "AND" and self._kind == "word" and self._text.upper() == "ROWID":
                self._advance()
                self._sign("=")
                self._value()
            else:
                name = self._name()
                if name in found:
                    raise self._error("each column once")
                if between == "AND" and self._kind == "word" and self._text.upper() == "IS":
                    self._advance()
                    self._word("NULL")
                    found[name] = None
                else:
                    self._sign("=")
                    found[name] = self._value()
            if between == ",":
                if not self._skips(","):
                    return found
            elif self._kind == "word" and self._text.upper() == between:
                self._advance()
            else:
                return found

    def _value(self) -> Literal | None:
        if self._kind == "word" and self._text.upper() == "NULL":
            self._advance()
            return None
        first = self._term()
        if first.function not in ("", "UNISTR") or first.is_number:
            return first
        units = _units(first)
        while self._kind == "join":
            self._advance()
            other = self._term()
            if other.function not in ("", "UNISTR") or other.is_number:
                raise self._error("texts on both sides of ||")
            units += _units(other)
        return Literal(_characters(units))

    def _term(self) -> Literal:
        if self._kind == "text":
            return Literal(self._quoted())
        if self._kind == "number":
            number = self._text
            self._advance()
            return Literal(number, is_number=True)
        name = self._text.upper() if self._kind == "word" else ""
        if name in ("NAN", "INF", "INFINITY", "BINARY_FLOAT_NAN", "BINARY_DOUBLE_NAN"):
            self._advance()
            return Literal(name, is_number=True)
        if name == "UNSUPPORTED":  # `Unsupported Type`: the value is not told
            self._advance()
            self._word("TYPE")
            return Literal("", name)
        if name not in _OF_ONE_TEXT | _EMPTY:
            raise self._error("a value")
        self._advance()
        self._sign("(")
        if name in _EMPTY:
            self._sign(")")
            return Literal("", name)
        text = self._quoted()
        while self._skips(","):  # the format, which the session has set
            self._quoted()
        self._sign(")")
        return Literal(text, name)

    def _quoted(self) -> str:
        if self._kind != "text":
            raise self._error("a text")
        text = self._text[self._text.index("'") + 1 : -1].replace("''", "'")
        self._advance()
        return text

    def _name(self) -> str:
        if self._kind != "name":
            raise self._error("a name in quotes")
        name = self._text[1:-1].replace('""', '"')
        self._advance()
        return name

    def _word(self, word: str) -> None:
        if self._kind != "word" or self._text.upper() != word:
            raise self._error(word)
        self._advance()

    def _sign(self, sign: str) -> None:
        if self._text != sign or self._kind != "sign":
            raise self._error(f"`{sign}`")
        self._advance()

    def _skips(self, sign: str) -> bool:
        if self._kind != "sign" or self._text != sign:
            return False
        self._advance()
        return True

    def _advance(self) -> None:
        found = _TOKEN.match(self._sql, self._at)
        if found is not None:
            self._kind, self._at = str(found.lastgroup), found.end()
            self._text = found.group(self._kind)
        elif not self._sql[self._at :].strip():
            self._kind, self._text = "end", ""
        else:
            self._kind, self._text = "other", ""

    def _error(self, needed: str) -> DecodeError:
        return DecodeError(
            "a statement of LogMiner cannot be read",
            f"needed {needed} before character {self._at} of {len(self._sql)}; its text holds values, and is "
            "not shown",
            "SELECT SQL_REDO FROM V$LOGMNR_CONTENTS shows it at the SCN; please report its form",
            code="TR-4614",
        )


def _units(value: Literal) -> str:
    r"""The text of a text, or of a call of UNISTR: `\00E9` is a code unit of UTF-16, `\\` a backslash."""
    if value.function != "UNISTR":
        return value.text
    return _ESCAPE.sub(lambda m: "\\" if m[1] == "\\" else chr(int(m[1], 16)), value.text)


def _characters(units: str) -> str:
    """A text, with the pairs of surrogates in it as the characters that they are."""
    try:
        return units.encode("utf-16-be", "surrogatepass").decode("utf-16-be")
    except UnicodeDecodeError as error:
        raise DecodeError(
            "a statement of LogMiner holds half a character",
            "UNISTR with a single surrogate; the value is not shown",
            "correct the value in the table",
            code="TR-4614",
        ) from error

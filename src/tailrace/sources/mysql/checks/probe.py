"""Asking a server for its settings, and what its user may do."""

from __future__ import annotations

import struct
from typing import Any

import pymysql
from pymysql.constants import ER
from pymysql.cursors import DictCursor

from tailrace.sources.mysql.protocol.driver import BoundedConnection

_COM_REGISTER_SLAVE = 0x15
#: Of the replica that is never one: the last there is.
_SERVER_ID = 0xFFFFFFFF
#: Refusals that say something of the user or of the server's set-up.
_REFUSALS = {
    ER.DBACCESS_DENIED_ERROR: "access to the database is denied",
    ER.TABLEACCESS_DENIED_ERROR: "access to the table is denied",
    ER.COLUMNACCESS_DENIED_ERROR: "access to a column is denied",
    ER.ACCESS_DENIED_ERROR: "a privilege is missing",
    ER.SPECIFIC_ACCESS_DENIED_ERROR: "a privilege is missing",
    ER.BAD_DB_ERROR: "there is no such database",
    ER.NO_SUCH_TABLE: "there is no such table",
    ER.BAD_FIELD_ERROR: "it has other columns",
    ER.OPTION_PREVENTS_STATEMENT: "the server is read-only",
    ER.NO_BINARY_LOGGING: "there is no binary log",
}


class Probe:
    """A server as one of its users sees it.

    Args:
        connection: an open one; stays the caller's.

    Attributes:
        variables: global variables, their names in lower case.
        account: the user the server takes us for, as GRANT wants it.
    """

    def __init__(self, connection: BoundedConnection) -> None:
        self._connection = connection
        self.variables = {
            str(row["Variable_name"]).lower(): str(row["Value"]) for row in self.rows("SHOW GLOBAL VARIABLES")
        }
        user, _, host = str(self.rows("SELECT CURRENT_USER() AS account")[0]["account"]).rpartition("@")
        self.account = f"{_quoted(user)}@{_quoted(host)}"

    def rows(self, statement: str) -> list[dict[str, Any]]:
        """The rows of a statement, by column name. Raises PyMySQL's errors."""
        with self._connection.cursor(DictCursor) as cursor:
            cursor.execute(statement)
            return list(cursor.fetchall())

    def refusal(self, statement: str) -> str | None:
        """Why the server refuses `statement` to this user; None if it does not.

        Raises PyMySQL's errors for failures of another kind.
        """
        try:
            self.rows(statement)
        except pymysql.err.MySQLError as error:
            if error.args and error.args[0] in _REFUSALS:
                return _REFUSALS[error.args[0]]
            raise
        return None

    def registration_refusal(self) -> str | None:
        """Why the server takes no replica of this user's; None if it does (until the connection ends)."""
        try:
            self._connection.command(
                _COM_REGISTER_SLAVE, struct.pack("<IBBBHII", _SERVER_ID, 0, 0, 0, 0, 0, 0)
            )
            self._connection.read_ok()
        except pymysql.err.MySQLError as error:
            if error.args and error.args[0] in _REFUSALS:
                return _REFUSALS[error.args[0]]
            raise
        return None


def _quoted(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "''") + "'"

"""Queries a server for its settings, and for what its user may do."""

from __future__ import annotations

import struct
from typing import Any

import pymysql
from pymysql.constants import ER
from pymysql.cursors import DictCursor

from tailrace.sources.mysql.protocol.driver import BoundedConnection

_COM_REGISTER_SLAVE = 0x15
#: The largest server id, for a replica that never reads.
_SERVER_ID = 0xFFFFFFFF
#: Refusals that are about the user or the server's set-up.
_REFUSALS = {
    ER.DBACCESS_DENIED_ERROR: "access to the database is denied",
    ER.TABLEACCESS_DENIED_ERROR: "access to the table is denied",
    ER.COLUMNACCESS_DENIED_ERROR: "access to a column is denied",
    ER.ACCESS_DENIED_ERROR: "a privilege is missing",
    ER.SPECIFIC_ACCESS_DENIED_ERROR: "a privilege is missing",
    ER.BAD_DB_ERROR: "the database does not exist",
    ER.NO_SUCH_TABLE: "the table does not exist",
    ER.BAD_FIELD_ERROR: "the table has other columns",
    ER.OPTION_PREVENTS_STATEMENT: "the server is read-only",
    ER.NO_BINARY_LOGGING: "the server has no binary log",
}


class Probe:
    """A server as seen by one of its users.

    Args:
        connection: an open one; stays the caller's.

    Attributes:
        variables: global variables, their names in lower case.
        account: the user that the server has authenticated, in the form that GRANT expects.
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
        """The reason why the server refuses `statement` to this user; None if it does not.

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
        """The reason why the server refuses to register a replica for this user; None if it does not.

        A registration lasts as long as the connection.
        """
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

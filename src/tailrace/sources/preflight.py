"""Preconditions of a source: what was found, what is needed, the statement that fixes it.

A finding is about the server; an error means that a check could not run. Checks never stop at the first
finding, so that all of them can be fixed at once.
"""

from __future__ import annotations

import ipaddress
import textwrap
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, ClassVar, Generic, Protocol, TypeVar

from tailrace.config.options import SourceOptions
from tailrace.errors import PreflightError, TailraceError, coded
from tailrace.printable import printable, printable_lines
from tailrace.sources import network

_MARKS = {"ok": "ok  ", "warning": "warn", "error": "FAIL"}


class Severity(StrEnum):
    """The consequence of a finding for capture."""

    OK = "ok"  # as needed
    WARNING = "warning"  # works, with a risk that `needed` names
    ERROR = "error"  # nothing is captured


@dataclass(frozen=True)
class Finding:
    """The outcome of one check.

    Args:
        check: the checked setting or object, e.g. `binlog_row_image` or `table shop.orders`.
        found: what the server has.
        needed: what capture needs, and for a warning the risk without it.
        remedy: the statement (or the setting in a file) that fixes it; "" where nothing is to be fixed.
        severity: its consequence.
        code: of a finding other than OK, one of `error_catalogue.CATALOGUE`.
        table: the table that it is about, as `str(TableId)`; None: the server, or several tables.
    """

    check: str
    found: str
    needed: str
    remedy: str = ""
    severity: Severity = Severity.OK
    code: str | None = None
    table: str | None = None


class CheckedConnection(AbstractContextManager[Any], Protocol):
    """A connection to a server of any kind."""

    @property
    def is_encrypted(self) -> bool:
        """Whether the connection runs over TLS."""

    def limit_whole(self, seconds: float) -> None:
        """Limit the time of all further answers together."""


C = TypeVar("C", bound=CheckedConnection)


class Preflight(ABC, Generic[C]):
    """Every check of a server, over one connection. A database's own class makes the checks.

    Args:
        options: the server and the tables.
        connection: an open one; stays the caller's.
    """

    #: The database's name, for messages.
    product: ClassVar[str]
    #: What the database's driver raises, OSError included.
    driver_errors: ClassVar[tuple[type[Exception], ...]]

    def __init__(self, options: SourceOptions, connection: C) -> None:
        self._options = options
        self._connection = connection

    @classmethod
    def check(cls, options: SourceOptions) -> list[Finding]:
        """The outcome of every check, in the order in which to fix them.

        A server that cannot be reached is itself a finding, and the only one.
        """
        try:
            return cls._findings(options)
        except TailraceError as error:
            return [_unreachable(options, error)]

    @classmethod
    def require(cls, options: SourceOptions) -> dict[str, TailraceError]:
        """Refuse capture when a precondition is not met.

        Returns:
            The tables that cannot be captured, as far as they may be parked, with the reasons.

        Raises:
            PreflightError: names every precondition that is not met, with the SQL that fixes it.
            TransientSourceError: the server cannot be reached.
        """
        findings = cls._findings(options)
        # MariaDB is checked as MySQL: the server's finding names the product
        product = next((f.found.split()[0] for f in findings if f.check == "server"), cls.product)
        server = f"{product} server `{options.host}:{options.port}`"
        refused = _parkable(findings, options.max_parked)
        require([finding for finding in findings if finding.table not in refused], server)
        return refused

    @classmethod
    def _findings(cls, options: SourceOptions) -> list[Finding]:
        try:
            connection = cls.connect(options, purpose="checking its set-up")
        except TailraceError as error:
            if error.retryable:
                raise
            return [_unreachable(options, error)]
        with connection:
            connection.limit_whole(options.retry_timeout_ms / 1000)
            try:
                with network.sensible("its set-up"):
                    return list(cls(options, connection).run())
            except cls.driver_errors as error:
                raise cls.translate(error, "checking the server's set-up") from error

    @staticmethod
    @abstractmethod
    def connect(options: SourceOptions, *, purpose: str) -> C:
        """Connect to the server. Raises TailraceError."""

    @staticmethod
    @abstractmethod
    def translate(error: Exception, doing: str) -> TailraceError:
        """The error of ours that corresponds to one of the driver's."""

    @abstractmethod
    def run(self) -> Iterator[Finding]:
        """Every finding, in the order in which to fix them."""

    def _encryption(self, user: str, remedy: str) -> Finding:
        """Whether rows cross the network in clear text.

        Args:
            user: the name of the capturing user.
            remedy: how to get TLS from a server of this kind.
        """
        check = f"connection to {self._options.host}:{self._options.port}"
        if self._connection.is_encrypted:
            return Finding(check, f"{user}, over TLS", "")
        found = f"{user}, not encrypted"
        if self._options.tls.mode == "disabled" or _is_local(self._options.host):
            return Finding(check, found, "")
        needed = "TLS, or rows cross the network in clear text"
        return Finding(check, found, needed, remedy, Severity.WARNING, code="TR-2003")


def _unreachable(options: SourceOptions, error: TailraceError) -> Finding:
    """The only finding when the server cannot be connected to."""
    return Finding(
        f"connection to {options.host}:{options.port}",
        f"{error.message}" + (f" ({error.detail})" if error.detail else ""),
        "a server that accepts this user's connections",
        error.hint or "",
        Severity.ERROR,
        code=error.code,
    )


def _parkable(findings: Sequence[Finding], most: int) -> dict[str, TailraceError]:
    """The tables that cannot be captured, if they are at most `most` and others can be."""
    failed = {f.table: f for f in reversed(errors(findings)) if f.table is not None}
    if not failed or len(failed) > most or not {f.table for f in findings} - failed.keys() - {None}:
        return {}
    return {
        table: PreflightError(
            f"table `{table}` cannot be captured",
            f"found {f.found}, needed {f.needed}",
            f.remedy or None,
            code=f.code,
            table=table,
        )
        for table, f in failed.items()
    }


def render(findings: Iterable[Finding]) -> str:
    """The findings as text, one paragraph each, in their order."""
    return "\n".join(_rendered(finding) for finding in findings)


def errors(findings: Iterable[Finding]) -> list[Finding]:
    """The findings that prevent capture."""
    return [finding for finding in findings if finding.severity is Severity.ERROR]


def require(findings: Sequence[Finding], server: str) -> None:
    """Refuse capture when a finding is an error.

    Args:
        findings: the outcomes of all checks.
        server: the checked server, for the message.

    Raises:
        PreflightError: every error in one message, with its remedy.
    """
    failed = errors(findings)
    if not failed:
        return
    count = "one precondition is" if len(failed) == 1 else f"{len(failed)} preconditions are"
    remedies = [finding.remedy for finding in failed if finding.remedy]
    raise PreflightError(
        f"{server} cannot be captured: {count} not met",
        "; ".join(f"{f.check}: found {f.found}, needed {coded(f.needed, f.code)}" for f in failed),
        "\n".join(["to fix it:", *(textwrap.indent(remedy, "  ") for remedy in remedies)])
        if remedies
        else None,
        code="TR-2001",
    )


def _is_local(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _rendered(finding: Finding) -> str:
    mark = _MARKS[finding.severity]
    if finding.severity is Severity.OK:
        return printable(f"{mark}  {finding.check}: {finding.found}")
    needed = coded(finding.needed, finding.code)
    lines = [printable(f"{mark}  {finding.check}: found {finding.found}, needed {needed}")]
    if finding.remedy:
        lines.append(textwrap.indent(printable_lines(finding.remedy), "        "))
    return "\n".join(lines)

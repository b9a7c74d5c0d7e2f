"""Preconditions of a source: what was found, what is needed, the statement that fixes it.

A finding is about the server; an error means that a check could not run. Checks never stop at the first
finding, so that all of them can be fixed at once.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from tailrace.config.options import SourceOptions
from tailrace.errors import PreflightError, TailraceError
from tailrace.printable import printable, printable_lines

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
    """

    check: str
    found: str
    needed: str
    remedy: str = ""
    severity: Severity = Severity.OK


def unreachable(options: SourceOptions, error: TailraceError) -> Finding:
    """The only finding when the server cannot be connected to."""
    return Finding(
        f"connection to {options.host}:{options.port}",
        f"{error.message}" + (f" ({error.detail})" if error.detail else ""),
        "a server that accepts this user's connections",
        error.hint or "",
        Severity.ERROR,
    )


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
        "; ".join(f"{f.check}: found {f.found}, needed {f.needed}" for f in failed),
        "\n".join(["to fix it:", *(textwrap.indent(remedy, "  ") for remedy in remedies)])
        if remedies
        else None,
    )


def _rendered(finding: Finding) -> str:
    mark = _MARKS[finding.severity]
    if finding.severity is Severity.OK:
        return printable(f"{mark}  {finding.check}: {finding.found}")
    lines = [printable(f"{mark}  {finding.check}: found {finding.found}, needed {finding.needed}")]
    if finding.remedy:
        lines.append(textwrap.indent(printable_lines(finding.remedy), "        "))
    return "\n".join(lines)

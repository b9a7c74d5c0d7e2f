"""Preconditions of a source: what was found, what is needed, the statement that mends it.

A finding is about the server; an error means that a check could not be made. Checks never stop at the
first finding: whoever sets a server up mends everything at once.
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
    """What a finding means for capture."""

    OK = "ok"  # as needed
    WARNING = "warning"  # works, with a risk that `needed` names
    ERROR = "error"  # capture is refused


@dataclass(frozen=True)
class Finding:
    """The outcome of one check.

    Args:
        check: what was looked at, e.g. `binlog_row_image` or `table shop.orders`.
        found: what the server has.
        needed: what capture needs, and for a warning what is at stake without it.
        remedy: the statement (or the file's setting) that mends it; "" where nothing needs mending.
        severity: what it means.
    """

    check: str
    found: str
    needed: str
    remedy: str = ""
    severity: Severity = Severity.OK


def unreachable(options: SourceOptions, error: TailraceError) -> Finding:
    """That the server could not be connected to, which is the only finding then."""
    return Finding(
        f"connection to {options.host}:{options.port}",
        f"{error.message}" + (f" ({error.detail})" if error.detail else ""),
        "a server that takes this user's connections",
        error.hint or "",
        Severity.ERROR,
    )


def render(findings: Iterable[Finding]) -> str:
    """The findings as text, one paragraph each, in their order."""
    return "\n".join(_rendered(finding) for finding in findings)


def errors(findings: Iterable[Finding]) -> list[Finding]:
    """The findings for which capture is refused."""
    return [finding for finding in findings if finding.severity is Severity.ERROR]


def require(findings: Sequence[Finding], server: str) -> None:
    """Refuses capture when a finding is an error.

    Args:
        findings: of every check.
        server: what was checked, for the message.

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
        "\n".join(["to mend it:", *(textwrap.indent(remedy, "  ") for remedy in remedies)])
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

"""Routes about pipeline files that are no subscriptions yet: checks, and the tables of a source."""

from __future__ import annotations

from fastapi import APIRouter

from tailrace.control import inspection
from tailrace.control.api.access import Admin, Controlled
from tailrace.control.api.models import CheckedOut, FileToCheck, FoundTableOut, SourceToLookAt
from tailrace.control.api.problems import responses

router = APIRouter(tags=["pipeline files"])


@router.post("/check", responses=responses(409, 502))
def check(control: Controlled, _: Admin, given: FileToCheck) -> list[CheckedOut]:
    """Check a file without creating anything, as `tailrace check` and `estimate`, for each source."""
    found = inspection.check(
        control, given.name, given.spec, seconds=given.estimate_seconds, whole=given.whole
    )
    return [CheckedOut.of(one) for one in found]


@router.post("/discover", responses=responses(409, 502))
def discover(control: Controlled, _: Admin, given: SourceToLookAt) -> dict[str, list[FoundTableOut]]:
    """The tables of a file's sources ("": there is one), with estimates of their rows."""
    return {
        source: FoundTableOut.all(tables) for source, tables in inspection.tables(control, given.spec).items()
    }

"""Routes of one subscription's jobs: comparisons of its tables, and repairs."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path, Query, Response

from tailrace.control import jobs
from tailrace.control.api.access import Controlled, Operator, Reader
from tailrace.control.api.models import JobOut, JobPage, NewJob, PathName
from tailrace.control.api.problems import responses
from tailrace.control.api.streams import Number
from tailrace.control.comparisons import compare
from tailrace.control.jobs import JobState

router = APIRouter(prefix="/subscriptions/{name}/jobs", tags=["jobs"])
_JobId = Annotated[int, Path(ge=1, le=(1 << 63) - 1)]


@router.post("", status_code=201, responses={200: {"model": JobOut}, **responses(404, 409)})
def create(control: Controlled, token: Operator, name: PathName, given: NewJob, response: Response) -> JobOut:
    """Compare tables with their targets, or repair them; the server that runs the subscription does it.

    The same key with the same content once more finds the same job: 200 instead of 201.
    """
    job, is_new = compare(
        control, token.name, name, given.kind, given.tables, source=given.source, key=given.key
    )
    response.status_code = 201 if is_new else 200
    return JobOut.of(job)


@router.get("", responses=responses(404))
def list_jobs(
    *,
    control: Controlled,
    _: Reader,
    name: PathName,
    before: Number = None,
    limit: Annotated[int, Query(ge=1, le=100)] = 20,
    state: JobState | None = None,
) -> JobPage:
    """Jobs, the newest first; the last hundred that have ended are kept."""
    found = control.database.read(
        lambda c: jobs.select_jobs(c, name, before=before, most=limit + 1, state=state)
    )
    items = [JobOut.of(one) for one in found[:limit]]
    return JobPage(items=items, next=items[-1].id if len(found) > limit else None)


@router.get("/{job}", responses=responses(404))
def get(control: Controlled, _: Reader, name: PathName, job: _JobId) -> JobOut:
    """A job, and how it ended."""
    return JobOut.of(control.database.read(lambda connection: jobs.get(connection, name, job)))


@router.post("/{job}/cancel", status_code=202, responses=responses(404, 409))
def cancel(control: Controlled, token: Operator, name: PathName, job: _JobId) -> JobOut:
    """Have a job end; rows that a repair reads again are read to the end."""
    with control.database.begin() as connection:
        return JobOut.of(jobs.cancel(connection, token.name, name, job))

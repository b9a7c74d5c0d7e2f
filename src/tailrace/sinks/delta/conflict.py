"""Retries work whose commit conflicts with another writer's. A batch's marks make that safe.

A target belongs to the stream, but others may compact it, fix a row, or set a property. Delta then refuses
the whole commit of the slower writer (`ConcurrentAppendException`, `MetadataChangedException`,
`ProtocolChangedException` and related ones). So the work is repeated on the table's new state.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from typing import TypeVar

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException

from tailrace.errors import TransientSinkError
from tailrace.sinks.delta.transaction import TableChangedError, delta_conflict, delta_violation
from tailrace.sinks.quarantine import refused_error

#: Number of attempts, and the pause before the second one; each further pause is twice as long.
_ATTEMPTS, _PAUSE_S = 4, 0.2

Result = TypeVar("Result")


def retried(name: str, work: Callable[[], Result]) -> Result:
    """Run `work`, again if another writer committed first.

    Args:
        name: the table's name, for errors.
        work: skips what is in the table already.

    Returns:
        The result of `work`.

    Raises:
        SinkError: a row violates a constraint of the table.
        TransientSinkError: another writer committed first every time.
    """
    for attempt in range(_ATTEMPTS):
        if attempt:
            time.sleep(_PAUSE_S * 2 ** (attempt - 1) * random.uniform(0.5, 1.5))  # noqa: S311 - no secret
        try:
            return work()
        except (Py4JJavaError, PySparkException, TableChangedError) as error:
            violated = delta_violation(error)
            if violated is not None:  # without Delta's own message, which holds values
                raise refused_error(name, "", violated, "the batch, or of pending changes") from None
            conflict = delta_conflict(error)
            if conflict is None:
                raise
            refused = error
    raise TransientSinkError(
        f"another writer changes target `{name}` at the same time",
        f"{_ATTEMPTS} commits were refused, the last by {conflict}",
        "change the pipeline's tables while it is stopped; for OPTIMIZE and VACUUM set"
        " `sink.optimize-interval` and `sink.vacuum-interval`",
        code="TR-7101",
    ) from refused

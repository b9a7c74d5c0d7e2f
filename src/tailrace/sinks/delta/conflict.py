"""What another writer's commit got in the way of: done again, which a batch's marks make safe.

A target is the stream's own, but others may compact it, mend a row, or set a property. Delta then refuses
the commit of whoever was slower (`ConcurrentAppendException`, `MetadataChangedException`,
`ProtocolChangedException` and their kin), whole: nothing of it is in the table. So it is done again from the
table's new state.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from typing import TypeVar

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException

from tailrace.errors import TransientSinkError
from tailrace.sinks.delta.transaction import delta_conflict

#: How often something is tried, and the pause before the second time; each further one is twice as long.
_ATTEMPTS, _PAUSE_S = 4, 0.2

Result = TypeVar("Result")


def retried(name: str, work: Callable[[], Result]) -> Result:
    """What `work` returns, done again where another writer was faster.

    Args:
        name: the table's, for errors.
        work: leaves out what of it is in the table already.

    Raises:
        TransientSinkError: others were faster every time.
    """
    for attempt in range(_ATTEMPTS):
        if attempt:
            time.sleep(_PAUSE_S * 2 ** (attempt - 1) * random.uniform(0.5, 1.5))  # noqa: S311 - no secret
        try:
            return work()
        except (Py4JJavaError, PySparkException) as error:
            conflict = delta_conflict(error)
            if conflict is None:
                raise
            refused = error
    raise TransientSinkError(
        f"target `{name}` is written by somebody else at the same time",
        f"{_ATTEMPTS} commits were refused, the last by {conflict}",
        "let others change the pipeline's tables while it rests; for OPTIMIZE and VACUUM there are"
        " `sink.optimize-interval` and `sink.vacuum-interval`",
    ) from refused

"""What a subscription does: its stage, and the moves between stages.

    register ──▶ snapshot ──▶ incremental_log          the stream's own way, forward only
       │            │               │
       └────────────┴───────┬───────┘
                            ▼
                  failed ──────▶ the stage reached before      `retry`, or the next start by itself
                            │
        any stage but cancelled ──▶ cancelled                  `cancel`; it is not run again

`reached` is the furthest of the first three stages that the subscription has been in. It never goes back: a
retry goes on from there, as its checkpoint does. A table that is read again leaves the subscription in
`incremental_log`: that reading is a matter of the table (`progress`).

`desired` is what users ask for. It moves on its own: `run` and `pause` as often as they like, `cancel` once.
"""

from __future__ import annotations

from enum import StrEnum

from tailrace.enumerator.offset import StreamOffset
from tailrace.errors import StateError


class Stage(StrEnum):
    """What a subscription does."""

    REGISTER = "register"
    SNAPSHOT = "snapshot"
    INCREMENTAL_LOG = "incremental_log"
    FAILED = "failed"
    CANCELLED = "cancelled"


class Desired(StrEnum):
    """What users ask of a subscription."""

    RUN = "run"
    PAUSE = "pause"
    CANCEL = "cancel"


#: The stages that a stream goes through, in order.
WAY = (Stage.REGISTER, Stage.SNAPSHOT, Stage.INCREMENTAL_LOG)


def moved(stage: Stage, reached: Stage, to: Stage) -> tuple[Stage, Stage]:
    """The stage after a move, and the furthest one reached.

    A stream that reports an earlier stage than the one reached, as a table that was added later does, stays
    where it was.

    Args:
        stage: the present stage.
        reached: the furthest stage on the way so far.
        to: where to.

    Raises:
        StateError: the subscription is cancelled.
    """
    if stage is Stage.CANCELLED and to is not Stage.CANCELLED:
        raise StateError(
            "a cancelled subscription stays cancelled",
            f"it was asked to become `{to}`",
            "create another subscription, with a checkpoint and targets of its own",
            code="TR-8406",
        )
    if to not in WAY:
        return to, reached
    furthest = max(reached, to, key=WAY.index)
    return furthest, furthest


def retried(stage: Stage, reached: Stage) -> tuple[Stage, Stage]:
    """The stage after a retry: where the subscription was before it failed.

    Raises:
        StateError: it has not failed.
    """
    if stage is not Stage.FAILED:
        raise StateError(
            "only a failed subscription can be tried again", f"found stage `{stage}`", code="TR-8407"
        )
    return reached, reached


def stage_of(offset: StreamOffset | None) -> Stage:
    """Where on its way a stream is.

    Args:
        offset: the end of its newest batch that all sinks have; None: there is none.
    """
    if offset is None or offset.log is None:
        return Stage.REGISTER
    return Stage.SNAPSHOT if offset.tables else Stage.INCREMENTAL_LOG

"""An offset that somebody sets, made such that no sink gets changes twice, and none lacks rows. Pure.

What cannot be made so is refused. Tables whose rows would be missing, or would come a second time as those of
a first snapshot, are read again in place instead (`model.reread`): targets that hold rows merge them.

    position back                  refused if a sink appends; else rows are written once more
    position on                    changes are left out: tables are read again, unless that is not wanted
    a cursor moved, or to null     the table is read again
    a table added to `done`        so is it: nobody has read its rows
    a table taken out              so is it, if a target has rows of it
    `again` dropped or changed     the reading begins anew, whole: what it has seen counts for nothing
    a table parked, or otherwise   refused: what its targets have stands there
    another `mode`, no position    refused: it would be another stream
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import replace

from tailrace.enumerator.offset import RereadProgress, StreamOffset
from tailrace.errors import ConfigError
from tailrace.sinks.base import WHOLE
from tailrace.sources.base import Position

#: Which server a position is of.
_SERVER = ("server", "epoch", "timeline")
#: Notes beside a position, which mean nothing for what is read.
_NOTES = ("ts_ms", "held_bytes", "left_bytes")


def continued(
    former: StreamOffset,
    new: StreamOffset,
    position_type: type[Position],
    *,
    appending: Sequence[str] = (),
    skips_changes: bool = False,
) -> tuple[StreamOffset, list[str]]:
    """The offset from which a stream can continue in place of `former`, and the tables that are read again.

    Args:
        former: the end of the newest batch, which is committed.
        new: the given offset.
        position_type: the class of their positions.
        appending: the types of the sinks that append changes.
        skips_changes: whether the changes before a later position are left out for good.

    Raises:
        ConfigError: the stream cannot continue from there.
    """
    if new.log is None:
        raise ConfigError(
            "the offset has no position",
            "a stream that starts anew would write the rows that the targets have",
            "give `log`, as `tailrace offsets show` prints it; or use a new checkpoint and new targets",
            code="TR-1301",
        )
    if former.log is None:
        return new, []
    if new.mode != former.mode:
        found = f"`mode` is `{new.mode}`, the stream was started with `{former.mode}`"
        raise _refused(found, "leave `mode` as it is")
    parked = sorted(n for n, entry in new.parked.items() if former.parked.get(n) != entry)
    if parked:
        found = f"it has an entry of `{parked[0]}` in `parked` that the stream does not have"
        raise _refused(found, f"tailrace signal PIPELINE.YAML park {parked[0]}")
    moved = _moved(former, new, position_type, appending)
    again = _unread(former, new) | _interrupted(former, new, moved=moved != 0)
    if moved > 0 and not skips_changes and new.mode in WHOLE:
        begun = {name for name, progress in former.tables.items() if progress.cursor is not None}
        again |= former.done.keys() | begun
    again -= new.parked.keys()
    end = replace(
        new,
        requests=tuple(dict.fromkeys([*former.requests, *new.requests])),
        waits={**former.waits, **new.waits},
        forgot=former.forgot or new.forgot,
        columns=former.columns,  # those that targets have: the stream compares them with the options
    )
    for name in sorted(again):
        end = end.with_reread(name, RereadProgress(uuid.uuid4().hex[:12]))
    return end, sorted(again)


def _moved(
    former: StreamOffset, new: StreamOffset, position_type: type[Position], appending: Sequence[str]
) -> int:
    """Whether the position lies before the former one (-1), at it (0), or behind it, or elsewhere (1)."""
    assert former.log is not None
    assert new.log is not None
    try:
        old_order, order = (position_type.from_json(o.log).order for o in (former, new) if o.log is not None)
    except (KeyError, TypeError, ValueError, AttributeError):
        raise ConfigError(
            "the offset's position is none of the source's database",
            None,
            "`tailrace offsets show` prints one of the stream",
            code="TR-1301",
        ) from None
    elsewhere = any(former.log.get(name) != new.log.get(name) for name in _SERVER)
    if appending and (elsewhere or order < old_order):
        found = "is of another server" if elsewhere else "is before the present one"
        raise ConfigError(
            f"sink `{appending[0]}` would receive changes for a second time",
            f"the offset's log position {found}, and the sink appends changes",
            "continue from the present position or a later one; `tailrace resync` reads tables again",
            code="TR-1309",
        )
    if elsewhere:
        return 1
    if order == old_order:
        both = former.log.keys() | new.log.keys()
        differing = sorted(n for n in both - {*_NOTES} if former.log.get(n) != new.log.get(n))
        if differing:
            raise _refused(
                f"`log.{differing[0]}` differs from that of the stream at the same position",
                "take a position as a whole, from `tailrace offsets show` or `offsets history`",
            )
        return 0
    return -1 if order < old_order else 1


def _unread(former: StreamOffset, new: StreamOffset) -> set[str]:
    """The tables whose rows would be missing, or would come as those of a first snapshot once more."""
    found = set(new.read_before(former))
    for name, progress in new.tables.items():
        if progress.cursor is not None and former.tables.get(name) != progress:
            found.add(name)
    if new.mode in WHOLE:  # else no table was promised as a whole
        found |= new.done.keys() - former.done.keys()
    return found


def _interrupted(former: StreamOffset, new: StreamOffset, *, moved: bool) -> set[str]:
    """The tables whose reading cannot go on as it is."""
    open_ = {name for name, entry in former.again.items() if not entry.done}
    changed = {name for name, entry in new.again.items() if former.again.get(name) != entry}
    kept = {name for name in open_ if not moved and new.again.get(name) == former.again[name]}
    return (open_ - kept) | changed


def _refused(found: str, hint: str) -> ConfigError:
    return ConfigError("the stream cannot continue from the offset", found, hint, code="TR-1311")

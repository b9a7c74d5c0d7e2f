"""Positions of the log at which a stream can end."""

from __future__ import annotations

import json

from tailrace.config.options import SourceOptions
from tailrace.errors import ConfigError, PositionLostError, StateError
from tailrace.sources.mysql.gtid import GtidSet
from tailrace.sources.mysql.position import MySqlPosition
from tailrace.sources.mysql.start.starting import (
    boundary_in_file,
    log_end_position,
    position_by_gtids,
    require_in_log,
)


def ending_position(options: SourceOptions, text: str, position: MySqlPosition) -> MySqlPosition:
    """The position that the option `endingPosition` names, or the transaction boundary before it.

    Args:
        options: the server.
        text: the option; not a time.
        position: the stream's.

    Raises:
        ConfigError: the log has no such position, or not yet.
        SourceError: the server does not report its position.
        TransientSourceError: the server was unreachable.
    """
    if text == "latest":
        return log_end_position(options)
    try:
        if text.lower().startswith("gtid:"):
            return position_by_gtids(options, GtidSet.parse(text.partition(":")[2]), options.gtid_sources)
        if text.startswith("{"):
            found = MySqlPosition.from_json(json.loads(text))
            if found.server and found.server != position.server:
                raise _not_in_log(text, f"it is a position of server `{found.server}`")
            name, pos = found.file, found.pos
        else:
            name, _, offset = text.partition(":")[2].rpartition(":")
            pos = int(offset)
        require_in_log(options, name, pos)
        return boundary_in_file(options, name, pos)
    except (PositionLostError, StateError) as error:
        raise _not_in_log(text, ": ".join(filter(None, (error.message, error.detail)))) from error


def _not_in_log(text: str, why: str) -> ConfigError:
    return ConfigError(
        f"the stream cannot end at `{text}`",
        why,
        "set endingPosition to a position that the log has, or to a time, which may lie ahead",
        code="TR-4007",
    )

"""Whether the server can continue a stream from an offset that somebody sets."""

from __future__ import annotations

from contextlib import closing

from tailrace.config.options import SourceOptions
from tailrace.enumerator.offset import StreamOffset
from tailrace.errors import ConfigError, PositionLostError
from tailrace.sources import registry


def require_in_log(options: SourceOptions, offset: StreamOffset) -> None:
    """Refuse an offset whose position the server's log does not have.

    Raises:
        ConfigError: it does not, or the position is within a transaction, or no position of this database.
        TailraceError: an error of the source, which may be out of reach.
    """
    if offset.log is None:
        return
    try:
        with closing(registry.source(options)) as source:
            position = source.position(offset.log)
            problem = source.position_problem(position)
            where = str(position)
    except PositionLostError as error:
        problem, where = error.detail or error.message, str(offset.log)
    except (KeyError, TypeError, ValueError, AttributeError):
        raise ConfigError(
            "the offset's position is none of the source's database",
            None,
            "`tailrace offsets show` prints one of the stream",
            code="TR-1301",
        ) from None
    if problem is not None:
        raise ConfigError(
            f"the stream cannot continue from {where}",
            problem,
            "take a position of `tailrace offsets history`, or the present one (`tailrace offsets show`);"
            " where the log that is needed is gone, `on-position-lost: refresh` reads every table again",
            code="TR-1310",
        )

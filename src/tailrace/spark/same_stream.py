"""Whether a checkpoint belongs to the stream that continues from it.

Spark stores offsets and knows nothing of options. With other tables or another shape, a stream that continues
from a checkpoint would begin anew under the old query: a second snapshot in the same target, or rows of
another form. So the end offset of each batch also says the shape, and it names the stream's tables anyway:

    {"v": 1, ..., "done": {"shop.orders": 7}, "shape": "row"}

Offsets of earlier versions say no shape, and any shape may continue from them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tailrace.config.options import SourceOptions
from tailrace.enumerator.offset import StreamOffset
from tailrace.errors import StateError
from tailrace.model.table_setting import TableSetting, in_force

_HINT = "start a new query with a new checkpoint and a new target, or restore the option `{}`"


def with_shape(offset: StreamOffset, options: SourceOptions) -> dict[str, Any]:
    """The offset as JSON, with the stream's shape."""
    value = offset.to_json()
    return value if offset.is_new else {**value, "shape": options.shape}


def require_same(stored: Mapping[str, Any], options: SourceOptions) -> None:
    """Refuse to continue from another stream's offset.

    A stream of many tables may lose some and gain others, as long as it keeps one that it had.

    Args:
        stored: a stream offset of the checkpoint, as JSON.
        options: the options of the stream that is to continue from it; a signal may have set other tables.

    Raises:
        StateError: it had another shape, or none of the tables that are captured now.
    """
    shape = stored.get("shape", options.shape)
    if shape != options.shape:
        raise StateError(
            f"the checkpoint belongs to a stream of shape `{shape}`",
            f"the option `shape` is now `{options.shape}`: the query's rows would change their form",
            _HINT.format("shape"),
            code="TR-6007",
        )
    setting = None if stored.get("set") is None else TableSetting.from_json(stored["set"])
    options = options.capturing(in_force(setting, options.tables))
    known = sorted({*stored.get("tables", ()), *stored.get("done", ())})
    if known and not any(options.captures(name) for name in known):
        more = f" and {len(known) - 5} more" if len(known) > 5 else ""
        raise StateError(
            "the checkpoint belongs to a stream of other tables",
            f"it has read {', '.join(f'`{name}`' for name in known[:5])}{more}; the option `tables` is now "
            f"{options.choice}, which matches none of them",
            f"{_HINT.format('tables')}; to add tables to a stream, keep its own in `tables`",
            code="TR-6007",
        )

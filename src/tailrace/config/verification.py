"""The settings `pipeline.verify`: when a running pipeline compares its tables with their targets."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime, time, timedelta
from enum import StrEnum

from tailrace.config.secret import shown
from tailrace.errors import ConfigError

_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}


class RepairWhen(StrEnum):
    """When differences are repaired."""

    NEVER = "never"
    SCHEDULE = "schedule"


class OnDifferences(StrEnum):
    """What happens if a target differs, or still does after its repair."""

    NOTIFY = "notify"
    FAIL = "fail"


@dataclass(frozen=True)
class Recurrence:
    """When something recurs: at an interval, or at times of the day by the driver's clock.

    Args:
        every: the interval; None: `times` are given.
        times: the times of the day, ascending.
    """

    every: timedelta | None = None
    times: tuple[time, ...] = ()

    def after(self, last: datetime) -> datetime:
        """The first time behind `last`."""
        if self.every is not None:
            return last + self.every
        days = (last.date(), last.date() + timedelta(days=1))
        return next(at for day in days for each in self.times if (at := datetime.combine(day, each)) > last)

    @classmethod
    def parse(cls, text: str) -> Recurrence:
        """Read `6h`, or `02:30, 14:30`.

        Raises:
            ValueError: it is neither.
        """
        interval = re.fullmatch(r"\s*([1-9]\d{0,8})\s*([smhd])\s*", text)
        if interval:
            return cls(timedelta(seconds=int(interval[1]) * _UNITS[interval[2]]))
        parts = [part.strip() for part in text.split(",")]
        if not all(re.fullmatch(r"\d{1,2}:\d\d", part) for part in parts):
            raise ValueError
        return cls(None, tuple(sorted({datetime.strptime(p, "%H:%M").time() for p in parts})))  # noqa: DTZ007


@dataclass(frozen=True)
class VerifySettings:
    """When a running pipeline compares its tables with their targets, and what it does about differences.

    Args:
        schedule: an interval (`6h`), or times of the day (`02:30, 14:30`).
        tables: regular expression over whole `database.table` names: only these tables; default: all.
        repair: `schedule`: what differs is read again, in place, and compared once more.
        on_differences: `fail`: the pipeline ends with an error if a target differs (after the repair).
        max_rows_per_second: most rows that a comparison reads from the source; default: that of the source.
        max_bytes_per_second: likewise, bytes.

    Raises:
        ConfigError: a value is not allowed.
    """

    schedule: str
    tables: str | None = None
    repair: RepairWhen = RepairWhen.NEVER
    on_differences: OnDifferences = OnDifferences.NOTIFY
    max_rows_per_second: int | None = None
    max_bytes_per_second: int | None = None

    def __post_init__(self) -> None:
        try:
            Recurrence.parse(self.schedule)
        except ValueError:
            raise ConfigError(
                "`pipeline.verify.schedule` is wrong",
                f"found {shown(self.schedule)}, allowed: an interval (30m, 6h, 1d) or times of the day"
                " (02:30, 14:30)",
                code="TR-1010",
            ) from None
        try:
            re.compile(self.tables or "")
        except re.error as error:
            raise ConfigError(
                "`pipeline.verify.tables` is not a regular expression", str(error), code="TR-1010"
            ) from None
        for name, value in (
            ("max-rows-per-second", self.max_rows_per_second),
            ("max-bytes-per-second", self.max_bytes_per_second),
        ):
            if value is not None and value <= 0:
                raise ConfigError(f"`pipeline.verify.{name}` must be > 0", f"found {value}", code="TR-1010")

    @property
    def times(self) -> Recurrence:
        """The schedule."""
        return Recurrence.parse(self.schedule)

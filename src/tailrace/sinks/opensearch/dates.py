"""Dates and times as ISO 8601 text, whatever their year.

Years outside 1 to 9999 have a sign and at least four digits, as OpenSearch reads them: `+12024-01-10`,
`-0043-03-15` (44 B.C.). PostgreSQL's infinities are the largest and the smallest number of their type, and
have the text of that moment.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from tailrace.sinks.tables.text_form import as_text

_DAY_US = 86_400_000_000
#: Days from 1 March of the year 0 to 1970, and days of 400 years.
_EPOCH, _ERA = 719_468, 146_097


def iso_text(array: pa.Array) -> pa.StringArray:
    """The text of dates (date32), or of dates and times (timestamps); NULL as NULL."""
    is_date = pa.types.is_date32(array.type)
    texts = as_text(array)  # numbers, where the year is not one of 1 to 9999
    if not is_date:
        texts = pc.replace_substring(texts, " ", "T")
    far = pc.fill_null(pc.match_substring_regex(texts, r"^-?\d+$"), False)
    if not pc.any(far).as_py():
        return texts
    end = "" if is_date or array.type.tz is None else "Z"
    numbers = map(int, texts.filter(far).to_pylist())
    iso = [_date(number) if is_date else _moment(number) + end for number in numbers]
    return pc.replace_with_mask(texts, far, pa.array(iso, pa.string()))


def _moment(us: int) -> str:
    days, us = divmod(us, _DAY_US)
    seconds, us = divmod(us, 1_000_000)
    text = f"{_date(days)}T{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}"
    return f"{text}.{us:06}".rstrip("0") if us else text


def _date(days: int) -> str:
    """A day in the proleptic Gregorian calendar, counted from 1970; years begin in March meanwhile."""
    era, day = divmod(days + _EPOCH, _ERA)
    year = (day - day // 1460 + day // 36_524 - day // 146_096) // 365
    day -= 365 * year + year // 4 - year // 100
    month = (5 * day + 2) // 153
    day -= (153 * month + 2) // 5 - 1
    month += 3 if month < 10 else -9
    year += 400 * era + (month <= 2)
    sign = "-" if year < 0 else "+" if year > 9999 else ""
    return f"{sign}{abs(year):04}-{month:02}-{day:02}"

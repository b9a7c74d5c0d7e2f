"""Errors of the data source, as Spark's users see them.

Spark reports an error of a Python data source as its traceback. For an error that its own text explains, our
frames would only hide that text: it is raised without them.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar, cast

from tailrace.errors import ConfigError, PositionLostError, PreflightError, StateError

P = ParamSpec("P")
R = TypeVar("R")

#: Causes that the user removes, not we.
_EXPLAINED = (ConfigError, PreflightError, StateError, PositionLostError)


def in_short(function: Callable[P, R]) -> Callable[P, R]:
    """Raise a user's error from here, without the frames below; for methods that Spark calls."""
    if inspect.isgeneratorfunction(function):

        @functools.wraps(function)
        def generate(*args: P.args, **kwargs: P.kwargs) -> Any:
            try:
                yield from cast("Any", function(*args, **kwargs))
            except _EXPLAINED as error:
                raise error.with_traceback(None) from None

        return cast("Callable[P, R]", generate)

    @functools.wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return function(*args, **kwargs)
        except _EXPLAINED as error:
            raise error.with_traceback(None) from None

    return call

"""Functions in Python that transforms of a pipeline call: Arrow in, Arrow out.

    import pyarrow as pa
    import pyarrow.compute as pc
    from tailrace.functions import returns

    @returns(pa.string())
    def domain(email: pa.Array) -> pa.Array:
        return pc.utf8_lower(pc.replace_substring_regex(email, ".*@", ""))

A pipeline file names it: `functions: {domain: cleaning:domain}`. Only functions declared like this can be
named there, so a pipeline file calls nothing that was not meant for it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import pyarrow as pa

#: Attribute of a function: the type of its results.
RETURNS = "tailrace_returns"

F = TypeVar("F", bound=Callable[..., pa.Array])


def returns(type_: pa.DataType) -> Callable[[F], F]:
    """Declare a function for transforms.

    It gets an array of the same length for each argument, and returns one of `type_` with that length. The
    n-th value may depend on the n-th values of the arguments alone: which rows come together in a call is not
    defined, and a batch that is repeated after a crash must give the same rows.

    Args:
        type_: the type of its results.
    """
    if not isinstance(type_, pa.DataType):
        raise TypeError(f"`returns` needs a type of Arrow, as `pa.string()`, not {type(type_).__name__}")

    def declare(function: F) -> F:
        setattr(function, RETURNS, type_)
        return function

    return declare

"""A JVM that ends while Spark starts: by a wrong option, or because something has killed it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from py4j.protocol import Py4JNetworkError  # type: ignore[import-untyped]
from pyspark.errors import PySparkRuntimeError

from tailrace.errors import ConfigError, TailraceError, TransientSourceError
from tailrace.spark import session

LOCAL = "local[1]"


def exited(*_: Any) -> None:
    raise PySparkRuntimeError(errorClass="JAVA_GATEWAY_EXITED", messageParameters={})


def test_jvm_that_was_killed_is_started_again_and_one_that_ends_by_itself_is_a_wrong_setting(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    started: list[Callable[..., None]] = [exited, lambda *_: None]

    def launch(*given: Any) -> None:
        started.pop(0)(*given)

    monkeypatch.setattr("tailrace.spark.launch.launch", launch)
    with session._failure_explained(LOCAL, None):
        session._launch({}, {}, None)
    assert started == []
    started += [exited, exited]
    with pytest.raises(ConfigError) as found, session._failure_explained(LOCAL, None):
        session._launch({}, {}, None)
    assert found.value.code == "TR-1206"


@pytest.mark.parametrize("error", [ConnectionRefusedError(111, "refused"), Py4JNetworkError("gone")])
def test_spark_that_is_lost_while_it_starts_is_no_wrong_setting(error: Exception) -> None:
    with pytest.raises(TailraceError) as found, session._failure_explained(LOCAL, None):
        raise error
    assert isinstance(found.value, TransientSourceError)
    assert (found.value.code, found.value.retryable) == ("TR-8001", True)

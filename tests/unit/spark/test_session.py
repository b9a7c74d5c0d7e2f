"""A JVM that ends while Spark starts: by a wrong option, or because something has killed it."""

from __future__ import annotations

from typing import Any

import pytest
from py4j.protocol import Py4JNetworkError  # type: ignore[import-untyped]
from pyspark.errors import PySparkRuntimeError

from tailrace.errors import ConfigError, TailraceError, TransientSourceError
from tailrace.spark import session

LOCAL = "local[1]"


class JvmInTest:
    """A JVM that can be reached, or has ended."""

    def __init__(self, *, ends: bool) -> None:
        self.ends, self.has_ended = ends, False

    def connect(self) -> None:
        if self.ends:
            raise PySparkRuntimeError(errorClass="JAVA_GATEWAY_EXITED", messageParameters={})

    def end(self, _: float) -> None:
        self.has_ended = True


def test_jvm_that_was_killed_is_started_again_and_one_that_ends_by_itself_is_a_wrong_setting(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made: list[JvmInTest] = []
    ends = iter([True, False, True, True])

    def begin(*_: Any, **__: Any) -> JvmInTest:
        made.append(JvmInTest(ends=next(ends)))
        return made[-1]

    monkeypatch.setenv("PYSPARK_PYTHON", "python")
    monkeypatch.setattr("tailrace.spark.launch.begin", begin)
    monkeypatch.setattr("tailrace.spark.launch.is_running", lambda: False)
    starting = session.StartingSession(LOCAL, {}, {}, None)
    starting.begin()
    starting._connect()
    assert [jvm.has_ended for jvm in made] == [True, False]
    starting.begin()
    with pytest.raises(ConfigError) as found, session._failure_explained(LOCAL, None):
        starting._connect()
    assert found.value.code == "TR-1206"


@pytest.mark.parametrize("error", [ConnectionRefusedError(111, "refused"), Py4JNetworkError("gone")])
def test_spark_that_is_lost_while_it_starts_is_no_wrong_setting(error: Exception) -> None:
    with pytest.raises(TailraceError) as found, session._failure_explained(LOCAL, None):
        raise error
    assert isinstance(found.value, TransientSourceError)
    assert (found.value.code, found.value.retryable) == ("TR-8001", True)


@pytest.mark.parametrize("of_user", [None, "com.example.Store"])
def test_delta_gets_one_log_store_only(monkeypatch: pytest.MonkeyPatch, of_user: str | None) -> None:
    monkeypatch.setattr("tailrace.spark.launch.is_running", lambda: True)
    given = {} if of_user is None else {"spark.delta.logStore.class": of_user}
    found = session.begin_session("test", master=LOCAL, extra_conf=given)._conf
    stores = {name: value for name, value in found.items() if name.startswith("spark.delta.logStore")}
    assert stores == (given or {"spark.delta.logStore.file.impl": "io.delta.storage.LocalLogStore"})

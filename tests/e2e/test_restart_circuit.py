"""The circuit of restarts on a live stream: it opens when failures repeat, and health in between counts."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tailrace.config.load import parse_pipeline
from tailrace.errors import TransientSourceError
from tailrace.pipeline import restarts
from tests.e2e.test_pipeline import Run, Watching
from tests.support.fake_source import put_failure
from tests.support.wait import wait_until

pytestmark = pytest.mark.slow


class _Watching(Watching):
    """Also notes the number in a row and the pause of each restart, and notices; may fail the next start."""

    def __init__(self) -> None:
        super().__init__()
        self.attempts: list[tuple[int, float]] = []
        self.notices: list[str] = []
        self.then: Callable[[], None] = lambda: None

    def on_restart(self, error: Any, attempt: int, pause_s: float) -> None:
        super().on_restart(error, attempt, pause_s)
        self.attempts.append((attempt, pause_s))
        self.then()

    def on_notice(self, text: str) -> None:
        self.notices.append(text)


class Live:
    """A pipeline that runs until it is stopped or fails for good; a test feeds it, and makes it fail.

    Args:
        run: the stream.
        settings: of the pipeline.
    """

    def __init__(self, run: Run, **settings: int) -> None:
        self.run, self.watching = run, _Watching()
        run.watching = self.watching
        self.error: Exception | None = None
        self._batches = 0
        text = "".join(f", {name.replace('_', '-')}: {value}" for name, value in settings.items())
        self._pipeline = parse_pipeline(
            f"source: {{url: 'mysql://x', user: u, tables: 'shop.*'}}\n"
            f"sink: {{type: parquet, path: '{run.path / 'lake'}'}}\n"
            f"pipeline: {{trigger: continuous{text}}}\n"
        )
        self._thread = threading.Thread(target=self._work)
        self._thread.start()

    def _work(self) -> None:
        try:
            self.run(self._pipeline)
        except Exception as error:  # noqa: BLE001 - looked at by the test
            self.error = error

    def batch(self) -> None:
        """A batch is written."""
        number, self._batches = self._batches, self._batches + 1
        self.run.put(number, number)
        wait_until(lambda: number in self.watching.batches, 120, f"batch {number}")

    def fail(self) -> None:
        """The next plan fails."""
        put_failure(self.run.source, TransientSourceError("connection lost", code="TR-3001"))

    def fail_once(self) -> None:
        """It fails, and starts again."""
        before = len(self.watching.attempts)
        self.fail()
        wait_until(lambda: len(self.watching.attempts) > before or not self.runs, 120, "a restart")

    @property
    def runs(self) -> bool:
        return self._thread.is_alive()

    def end(self) -> Exception | None:
        """With what it ends by itself."""
        self._thread.join(240)
        assert not self.runs
        return self.error

    def stop(self) -> None:
        self.run.stop.set()
        self._thread.join(120)


@pytest.fixture
def run(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    monkeypatch.setattr(restarts, "_FIRST_PAUSE_S", 0.2)
    return Run(spark, tmp_path)


def test_stream_that_writes_in_between_goes_on_until_it_fails_too_often_in_a_row(run: Run) -> None:
    live = Live(run, restarts=2, restarts_per_hour=0)
    try:
        for _ in range(4):
            live.batch()
            live.fail_once()
        assert [attempt for attempt, _ in live.watching.attempts] == [1, 1, 1, 1]
        live.batch()
        live.watching.then = live.fail  # each start fails from now on
        live.fail()
        assert isinstance(live.end(), TransientSourceError)
        assert [attempt for attempt, _ in live.watching.attempts][4:] == [1, 2]
        assert live.watching.batches == [0, 1, 2, 3, 4]
    finally:
        live.stop()


def test_circuit_opens_after_too_many_failures_within_an_hour_whatever_was_written(run: Run) -> None:
    live = Live(run, restarts=10, restarts_per_hour=3)
    try:
        for _ in range(4):
            live.batch()
            live.fail_once()
        assert isinstance(live.end(), TransientSourceError)
        assert [attempt for attempt, _ in live.watching.attempts] == [1, 1, 1]
        assert "the stream failed more than 3 times within an hour" in live.watching.notices
        assert live.watching.batches == [0, 1, 2, 3]
    finally:
        live.stop()


def test_pauses_grow_and_begin_anew_once_the_stream_has_run_well(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(restarts, "_WELL_S", 600.0)
    live = Live(run, restarts=10, restarts_per_hour=0)
    try:
        for number in range(4):
            live.batch()
            live.fail_once()
            low, high = 0.1 * 2**number, 0.2 * 2**number
            assert low <= live.watching.attempts[-1][1] <= high
        live.batch()
        monkeypatch.setattr(restarts, "_WELL_S", 0.0)  # what it has run by now is enough
        live.fail_once()
        assert live.watching.attempts[-1][1] <= 0.2
    finally:
        live.stop()

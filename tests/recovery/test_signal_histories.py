"""Random histories of a stream that crashes while it receives signals, over a model of a database.

The model is that of the histories of parking. Signals come as rows of the log and as files; whatever crashes,
each is obeyed and answered once, and targets stay exact.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import pytest

from tailrace.enumerator.enumerator import Enumerator
from tailrace.enumerator.request import Request
from tailrace.model.signal import Signal
from tailrace.sources.base import LogRange
from tests.recovery.test_parked_histories import NAMES, Database, History, Requested
from tests.unit.enumerator.test_enumerator import At, enumerator

SIGNALS = "shop.signals"


class SignalledDatabase(Database):
    """A database whose log has signals, too."""

    def send(self, signal: Signal) -> None:
        self.log.append((SIGNALS, signal, None))  # type: ignore[arg-type]

    def range_after(self, start: At, *, upto: At | None, **given: Any) -> LogRange | None:
        found = super().range_after(start, upto=upto, **given)
        if found is None:
            return None
        sent = self.signals_in(start.pos, found.end.pos)
        return replace(found, may_have_signals=bool(sent))

    def signals_in(self, start: int, end: int) -> list[tuple[str, Signal]]:
        entries: list[Any] = list(enumerate(self.log))[start:end]
        return [(f"log-{at}", entry[1]) for at, entry in entries if entry[0] == SIGNALS]

    def read(self, split: Any) -> Any:
        whole = self.log
        self.log = [entry if entry[0] != SIGNALS else (NAMES[0], -1, None) for entry in whole]
        try:
            return super().read(split)
        finally:
            self.log = whole


class FromTheLog:
    """Reads the signals of the model."""

    def __init__(self, database: SignalledDatabase) -> None:
        self._database = database

    def read(self, log: object, start: Any, end: Any) -> list[tuple[str, Signal]]:
        return self._database.signals_in(start["pos"], end["pos"])


class SignalledRequests(Requested):
    def send(self, signal: Signal) -> None:
        self.count += 1
        self.waiting.append(Request(f"r{self.count}", (), "signal", signal=signal))


class SignalledHistory(History):
    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.database = SignalledDatabase(self.draw)
        self.requests = SignalledRequests()
        self.sent: dict[str, Signal] = {}
        self.plan = self._begin()

    def _begin(self) -> Enumerator:
        given = {"snapshotChunkRows": "3", "parallelism": 2, "signal.data.collection": SIGNALS}
        plan = enumerator(self.database, requests=self.requests, **given)
        if isinstance(self.database, SignalledDatabase):
            plan._signal_table = FromTheLog(self.database)  # type: ignore[assignment]
        return plan

    def send(self, kind: str, *tables: str) -> None:
        signal = Signal(f"s{len(self.sent)}", kind, {"data-collections": list(tables)})
        self.sent[signal.id] = signal
        assert isinstance(self.database, SignalledDatabase)
        assert isinstance(self.requests, SignalledRequests)
        # what the log has before the stream begins is no signal
        in_log = not self.offsets[-1].is_new and self.draw.random() < 0.6
        (self.database if in_log else self.requests).send(signal)


@pytest.mark.parametrize("seed", range(200))
def test_each_signal_is_obeyed_once_whatever_is_killed(seed: int) -> None:
    history = SignalledHistory(seed)
    kinds = [
        "execute-snapshot",
        "resync",
        "stop-snapshot",
        "pause-snapshot",
        "resume-snapshot",
        "park",
        "resume",
        "log",
        "make-coffee",
    ]
    for _ in range(60):
        if history.draw.random() < 0.4:
            history.database.write(history.draw.randrange(6))
        elif history.draw.random() < 0.3:
            history.send(history.draw.choice(kinds), history.draw.choice(NAMES))
        history.step(0.1)
    while history.step(0.0):  # signals of different channels have no order
        pass
    for last in ("resume-snapshot", "resume"):
        history.send(last, "shop[.].*")
        history.database.write(5)
        while history.step(0.0):
            pass

    end = history.offsets[-1]
    assert not end.paused
    assert not end.parked
    assert not end.signals
    assert {request.id for request in history.requests.waiting} <= set(end.requests)
    for name in NAMES:
        assert history.targets[name].rows == history.database.at(len(history.database.log), name)
    answers = Counter(answer.id for offset in history.offsets for answer in offset.answers)
    readings: dict[tuple[str, str], set[str]] = {}
    for offset in history.offsets:
        for name, reread in offset.again.items():
            if reread.by is not None:
                readings.setdefault((reread.by, name), set()).add(reread.id)
    assert all(len(ids) == 1 for ids in readings.values()), "a signal was obeyed twice"
    assert not answers or max(answers.values()) == 1, "a signal was answered twice"
    for id_, signal in history.sent.items():
        if signal.type not in ("execute-snapshot", "resync"):
            assert answers[id_] == 1, f"{signal} was not answered"

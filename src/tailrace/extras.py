"""Optional packages: the extra that installs them, and the error if they are missing or do not load."""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec

from tailrace.errors import ConfigError

#: Extra of `pyproject.toml` -> modules that we import from its packages.
EXTRAS = {
    "aws": ("botocore.session",),
    "azure": ("azure.identity",),
    "clickhouse": ("clickhouse_connect",),
    "delta": ("pyroaring",),
    "dev": ("tailrace_dev",),
    "duckdb": ("duckdb",),
    "gcp": ("google.auth",),
    "iceberg": ("pyiceberg.catalog.sql", "pyiceberg.io.pyarrow"),
    "kafka": ("confluent_kafka.admin",),
    "mariadb": ("nacl.bindings",),
    "nats": ("nats.js.api",),
    "openlineage": ("openlineage.client",),
    "otel": ("opentelemetry.sdk.trace", "opentelemetry.exporter.otlp.proto.http"),
    "oracle": ("oracledb",),
    "postgres": ("pg8000.core",),
    "rabbitmq": ("pika",),
    "redis": ("redis",),
    "server": (
        "alembic.command",
        "authlib",
        "fastapi",
        "jinja2",
        "joserfc",
        "pyroaring",
        "python_multipart",
        "requests",
        "sqlalchemy",
        "sse_starlette",
        "uvicorn",
    ),
}


def of_source(dialect: str) -> str | None:
    """The extra that brings the driver of a source's database; None: the base installation has it."""
    return {"oracle": "oracle", "postgresql": "postgres"}.get(dialect)


def of_authentication(authentication: str) -> str | None:
    """The extra that brings what requests a cloud's tokens; None: there are none."""
    return {"aws-rds-iam": "aws", "azure-entra": "azure", "gcp-iam": "gcp"}.get(authentication)


def is_installed(extra: str | None) -> bool:
    """Whether the packages of an extra are there; they are not imported.

    Args:
        extra: its name, one of EXTRAS; None: nothing beyond the base installation.
    """
    return all(find_spec(module.partition(".")[0]) for module in (EXTRAS[extra] if extra else ()))


def require(extra: str | None, user: str) -> None:
    """Import the packages of an extra.

    Args:
        extra: its name, one of EXTRAS; None: nothing beyond the base installation.
        user: the part that needs them, e.g. "sink `delta`".

    Raises:
        ConfigError: a package is not installed, or cannot be imported; names the extra.
    """
    for module in EXTRAS[extra] if extra else ():
        package = module.partition(".")[0]
        install = f"pip install 'tailrace[{extra}]'"
        try:
            import_module(module)
        except ImportError as error:
            if isinstance(error, ModuleNotFoundError) and error.name == package:
                raise ConfigError(
                    f"{user} needs the extra `{extra}`",
                    f"package `{package}` is not installed",
                    install,
                    code="TR-1203",
                ) from None
            missing = isinstance(error, ModuleNotFoundError)
            raise ConfigError(
                f"{user} needs package `{package}`, which cannot be imported",
                f"{type(error).__name__}: {error}",
                install if missing else f"install it again: pip install --force-reinstall {package}",
                code="TR-1203",
            ) from error

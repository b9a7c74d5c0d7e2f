"""Spark's JVM: started with its settings in a private file, and ended with all its files on disk removed.

PySpark would start it with every setting on its command line, which all users of a machine can read. Our JVM
reads them from a file of mode 0600, which is removed as soon as Spark has read it. Options of the JVM itself
(`spark.driver.extraJavaOptions`) are on the command line nevertheless: the JVM reads them nowhere else.

All temporary files of the JVM are in one directory, `tailrace-spark-*` in the system's directory for
temporary files, for this user only:

    spark.properties    the settings, until Spark has read them
    gateway             the JVM's address, until this process has read it
    fork.sock           where Spark's Python processes are forked (`fork_server`)
    log4j2.properties   settings of the log
    lock                held by this process while it lives
    tmp/                `java.io.tmpdir`: Spark's scratch directories, native libraries

The directory is removed when the JVM ends. If the JVM was killed, the next JVM that the same user starts on
the machine removes it.
"""

from __future__ import annotations

import fcntl
import json
import os
import shlex
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from py4j.java_gateway import JavaObject  # type: ignore[import-untyped]
from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkRuntimeError
from pyspark.find_spark_home import _find_spark_home
from pyspark.java_gateway import ensure_callback_server_started, launch_gateway
from pyspark.serializers import UTF8Deserializer, read_int

from tailrace.private import open_private, write_private
from tailrace.spark import log_records
from tailrace.spark.fork_server import ForkServer, start

_PREFIX = "tailrace-spark-"
_SETTINGS = "spark.properties"
#: How often to look for a JVM that starts, seconds.
_LOOK_S = 0.02
#: Options of the JVM that only puts the command together.
_LAUNCHER_OPTIONS = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xshare:auto"
#: Control characters that could forge a line or control a terminal: names and server messages can hold any.
_CONTROL = r"\x7f-\x9f\u2028-\u202e\u2066-\u2069"
#: A message on one line, a trace on several, both without control characters.
_MESSAGE = rf"%replace{{%enc{{%m}}{{CRLF}}}}{{[\x00-\x1f{_CONTROL}]}}{{?}}"
_TRACE = rf"%replace{{%ex}}{{[\x00-\x08\x0b-\x1f{_CONTROL}]}}{{?}}"
#: The same as JSON, without the closing brace; an error is its trace, "" where there is none.
_JSON = ", ".join(
    [
        """"at": "%d{yyyy-MM-dd'T'HH:mm:ss.SSS}{UTC}Z\"""",
        '"level": "%p"',
        '"logger": "%enc{%c}{JSON}"',
        *(
            f'"{name}": "%replace{{%enc{{{text}}}{{JSON}}}}{{[{_CONTROL}]}}{{?}}"'
            for name, text in (("message", "%m"), ("error", "%ex"))
        ),
    ]
)
#: The settings of an appender that begins new files.
_ROLLING = ("appender.file.policies", "appender.file.strategy", "appender.file.filePattern")
_LOG4J = {
    "status": "error",
    "rootLogger.level": "warn",
    "rootLogger.appenderRef.file.ref": "file",
    "appender.file.type": "RollingFile",
    "appender.file.name": "file",
    "appender.file.filePermissions": "rw-------",
    "appender.file.layout.type": "PatternLayout",
    "appender.file.layout.pattern": f"%d{{yyyy-MM-dd HH:mm:ss.SSS}} %p %c{{1}}: {_MESSAGE}%n{_TRACE}",
    "appender.file.layout.alwaysWriteExceptions": "false",
    "appender.file.policies.type": "Policies",
    "appender.file.policies.size.type": "SizeBasedTriggeringPolicy",
    "appender.file.policies.size.size": "20MB",
    "appender.file.strategy.type": "DefaultRolloverStrategy",
    "appender.file.strategy.max": "3",
    # events of the log travel in their task: large tasks are meant
    **{
        f"logger.{name}.{key}": value
        for name, text in {
            "TaskSetManager": "task of very large size",
            "DAGScheduler": "large task binary",
        }.items()
        for key, value in {
            "name": f"org.apache.spark.scheduler.{name}",
            "level": "warn",
            "filter.large.type": "RegexFilter",
            "filter.large.regex": f".*{text}.*",
            "filter.large.onMatch": "DENY",
            "filter.large.onMismatch": "NEUTRAL",
        }.items()
    },
}


@dataclass(frozen=True)
class SparkLog:
    """The file of Spark's log.

    Args:
        path: the file.
        fields: its lines are JSON, each with these constants; None: they are text.
        rolls: whether the JVM begins a new file when this one is full; False: another process takes care.
    """

    path: Path
    fields: Mapping[str, str] | None = None
    rolls: bool = True

    @property
    def output(self) -> Path:
        """The file for what the JVM and its workers print: in a file of JSON it would be no JSON."""
        return self.path if self.fields is None else self.path.with_name(f"{self.path.name}.out")

    def log4j(self) -> dict[str, str]:
        """The settings of the log."""
        file = self.path.absolute()
        found = {**_LOG4J, "appender.file.fileName": f"{file}", "appender.file.filePattern": f"{file}.%i"}
        if self.fields is not None:
            constants = json.dumps(dict(self.fields))[1:-1].replace("%", "%%")
            found["appender.file.layout.pattern"] = f"{{{_JSON}, {constants}}}%n"
        if not self.rolls:
            found = {name: value for name, value in found.items() if not name.startswith(_ROLLING)}
            found["appender.file.type"] = "File"
        return found


def is_running() -> bool:
    """Whether this process already has a JVM, its own or that of `spark-submit`."""
    return SparkContext._gateway is not None or "PYSPARK_GATEWAY_PORT" in os.environ  # noqa: SLF001


@dataclass(frozen=True)
class Jvm:
    """A JVM that this process has started.

    Args:
        conf: Spark's settings.
        home: the directory of its files.
        process: the process.
        fork_server: forks Spark's Python processes; None: each is an interpreter of its own.
    """

    conf: Mapping[str, str]
    home: Path
    process: subprocess.Popen[bytes]
    fork_server: ForkServer | None

    @property
    def _place(self) -> Path:
        """Where it writes its address when it can be reached."""
        return self.home / "gateway"

    def connect(self) -> None:
        """Wait for the JVM, and make it this process's, with Spark in it.

        Raises:
            PySparkRuntimeError: it has ended before.
        """
        while not self._place.exists():
            if self.process.poll() is not None:
                raise PySparkRuntimeError(errorClass="JAVA_GATEWAY_EXITED", messageParameters={})
            time.sleep(_LOOK_S)
        with self._place.open("rb") as place:
            port, secret = read_int(place), UTF8Deserializer().loads(place)  # type: ignore[no-untyped-call]
        with _environment({"PYSPARK_GATEWAY_PORT": f"{port}", "PYSPARK_GATEWAY_SECRET": secret}):
            gateway = launch_gateway()  # type: ignore[no-untyped-call]
        for file in (self._place, self.home / _SETTINGS):
            file.unlink()
        _authenticate_callbacks(gateway)
        gateway.proc = self.process
        gateway.tailrace_jvm = self
        hooks = gateway.jvm.org.apache.spark.util.ShutdownHookManager
        hooks.registerShutdownDeleteDir(gateway.jvm.java.io.File(str(self.home)))
        settings = SparkConf()
        settings.setAll(list(self.conf.items()))
        SparkContext(conf=settings, gateway=gateway)

    def end(self, patience_s: float) -> None:
        """End it, and remove its files.

        Args:
            patience_s: how long to wait before it is killed, seconds.
        """
        with suppress(OSError):
            self.process.stdin.close()  # type: ignore[union-attr]  # which ends the JVM
        try:
            self.process.wait(patience_s)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        if self.fork_server is not None:
            self.fork_server.end()
        shutil.rmtree(self.home, ignore_errors=True)


def begin(
    conf: Mapping[str, str], environment: Mapping[str, str], log_file: SparkLog | None, *, forks: bool
) -> Jvm:
    """Start a JVM, and do not wait for it.

    Args:
        conf: Spark's settings.
        environment: variables of the JVM, besides this process's own.
        log_file: the file for the JVM's output and Spark's log; None: the terminal.
        forks: whether its Python processes are forked from one that has imported what they need.
    """
    home = new_home()
    options = [f"-Djava.io.tmpdir={home / 'tmp'}"]
    if log_file is not None:
        write_private(home / "log4j2.properties", _properties(log_file.log4j()))
        options.append(f"-Dlog4j2.configurationFile={(home / 'log4j2.properties').as_uri()}")
        environment = {**environment, **log_records.settings(log_file.path, log_file.fields)}
    java = "spark.driver.extraJavaOptions"
    given = [conf[java]] if java in conf else []
    conf = {**conf, java: " ".join([*map(_quoted, options), *given])}
    write_private(home / _SETTINGS, _properties(conf))
    submit = shlex.split(os.environ.get("PYSPARK_SUBMIT_ARGS", "pyspark-shell"))
    command = [f"{_find_spark_home()}/bin/spark-submit", "--properties-file", str(home / _SETTINGS)]
    fork_server = None
    try:
        with _output(log_file) as output:
            if forks:
                fork_server = start(home, environment, output.get("stderr"))
                environment = {**environment, **fork_server.variables}
            process = subprocess.Popen(  # noqa: S603 - Spark's
                [*command, "--load-spark-defaults", *submit],
                stdin=subprocess.PIPE,  # it ends when this closes
                env={
                    "SPARK_LAUNCHER_OPTS": _LAUNCHER_OPTIONS,
                    **os.environ,
                    **environment,
                    "SPARK_CONNECT_MODE": "0",
                    "_PYSPARK_DRIVER_CONN_INFO_PATH": str(home / "gateway"),
                },
                preexec_fn=_ignore_interrupts,  # noqa: PLW1509 - as PySpark does
                **output,
            )
    except BaseException:
        if fork_server is not None:
            fork_server.end()
        shutil.rmtree(home, ignore_errors=True)
        raise
    return Jvm(conf, home, process, fork_server)


def end(patience_s: float) -> None:
    """End the JVM that `Jvm.connect` has made this process's. A JVM of another origin keeps running.

    Args:
        patience_s: how long to wait before the JVM is killed, seconds.
    """
    gateway: Any = SparkContext._gateway  # noqa: SLF001
    jvm: Jvm | None = getattr(gateway, "tailrace_jvm", None)
    if jvm is None:
        return
    with suppress(Py4JError, OSError):
        gateway.shutdown()
    SparkContext._gateway = SparkContext._jvm = None  # noqa: SLF001
    jvm.end(patience_s)


def _ignore_interrupts() -> None:
    """Leave Ctrl-C to this process: the JVM must outlive the batch."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def _authenticate_callbacks(gateway: Any) -> None:
    """Let the JVM's calls of our functions carry the gateway's secret.

    PySpark's callback server listens on loopback and obeys whoever connects: any user of the machine could
    call `foreachBatch`'s function. Py4J has authentication, but `resetCallbackClient` (PythonClient.copyWith,
    0.10.9.9) loses the JVM's token.
    """
    token = gateway.java_parameters.auth_token
    gateway.python_parameters.auth_token = token
    ensure_callback_server_started(gateway)  # type: ignore[no-untyped-call]
    client = JavaObject("GATEWAY_SERVER", gateway._gateway_client).getCallbackClient()  # noqa: SLF001
    field = gateway.jvm.py4j.CallbackClient._java_lang_class.getDeclaredField("authToken")  # noqa: SLF001
    field.setAccessible(True)
    field.set(client, token)


def new_home() -> Path:
    """Create a directory for a JVM's files; remove those of processes that have ended."""
    for left in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
        with suppress(OSError):  # another user's, or held by its process
            if left.lstat().st_uid == os.getuid() and not left.is_symlink():
                with (left / "lock").open("rb") as lock:
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    shutil.rmtree(left)
    home = Path(tempfile.mkdtemp(prefix=_PREFIX))
    held = os.open(home / "lock.new", os.O_CREAT | os.O_RDWR, 0o600)  # never closed: released at our end
    fcntl.flock(held, fcntl.LOCK_EX)
    (home / "lock.new").rename(home / "lock")
    (home / "tmp").mkdir(mode=0o700)
    return home


def _quoted(option: str) -> str:
    """An option, quoted for Spark's launcher, which splits them."""
    return '"' + option.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _properties(settings: Mapping[str, str]) -> str:
    """The text of a file of Java's `Properties`."""
    return "".join(f"{_escaped(name)}={_escaped(str(value))}\n" for name, value in settings.items())


def _escaped(text: str) -> str:
    """`text` as a name or value: letters and digits as they are, all else by its UTF-16 number."""
    units = text.encode("utf-16-be", "surrogatepass")
    numbers = [int.from_bytes(units[i : i + 2], "big") for i in range(0, len(units), 2)]
    return "".join(chr(n) if n < 128 and chr(n).isalnum() else f"\\u{n:04x}" for n in numbers)


@contextmanager
def _output(log_file: SparkLog | None) -> Iterator[dict[str, Any]]:
    """The JVM's output: it prints warnings before logging is set up."""
    if log_file is None:
        yield {}
        return
    log_file.path.parent.mkdir(parents=True, exist_ok=True)
    with open(log_file.output, "ab", opener=open_private) as log:
        yield {"stdout": log, "stderr": log}


@contextmanager
def _environment(variables: Mapping[str, str]) -> Iterator[None]:
    """Set `variables` in the process's environment, for processes started in this context."""
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value

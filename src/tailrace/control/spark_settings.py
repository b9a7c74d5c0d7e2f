"""What a pipeline file may hand to Spark on a server: plain settings, and SQL over its own rows. Pure.

Spark loads classes by dozens of settings, starts programs by others, and passes options to the JVM. Those
which do none of it are few, and known here. SQL reads files (`csv.`/etc/passwd``) and calls Java (`reflect`);
a transform needs neither: it is a list of expressions over a table's columns. `extract(year FROM t)` is
written `year(t)`, `a IS NOT DISTINCT FROM b` is `a <=> b`.
"""

from __future__ import annotations

import re
from collections.abc import Callable

#: Settings of memory, cores, parallelism and time, whose values are numbers with units.
_PLAIN = re.compile(
    r"spark\.(driver|executor)\.(memory|memoryOverhead|memoryOverheadFactor|cores)|spark\.executor\.instances|"
    r"spark\.cores\.max|spark\.default\.parallelism|spark\.sql\.shuffle\.partitions|spark\.task\.(cpus|maxFailures)|"
    r"spark\.dynamicAllocation\.(enabled|minExecutors|maxExecutors|initialExecutors)|spark\.network\.timeout|"
    r"spark\.sql\.files\.max(PartitionBytes|RecordsPerFile)|spark\.sql\.parquet\.compression\.codec|"
    r"spark\.memory\.(fraction|storageFraction)|spark\.memory\.offHeap\.(enabled|size)|"
    r"spark\.locality\.wait|spark\.speculation|spark\.rpc\.askTimeout"
)
_PLAIN_VALUE = re.compile(r"[A-Za-z0-9.]{1,40}")
_S3 = re.compile(r"spark\.hadoop\.fs\.s3a\.(bucket\.[a-z0-9-]+\.)?(?P<name>.+)")
#: Settings of the connector for S3: values of any form (keys), plain ones, addresses.
_S3_SECRETS = frozenset({"access.key", "secret.key", "session.token"})
_S3_PLAIN = frozenset(
    {"endpoint.region", "path.style.access", "connection.ssl.enabled", "connection.maximum"}
)
_S3_PROVIDERS = "aws.credentials.provider"
_PROVIDER = re.compile(
    r"org\.apache\.hadoop\.fs\.s3a\.(SimpleAWS|TemporaryAWS|AnonymousAWS)CredentialsProvider"
)
#: Words without which no query reads a table or file and no program is started (`TRANSFORM ... USING`), and
#: functions that call Java or read files. Also inside texts and names: telling those from code is what an
#: attack on such a check plays with. Spark takes `ſelect` for SELECT; so does `str.upper`.
_WORDS = re.compile(
    r"\b(SELECT|FROM|TABLE|USING|REFLECT|JAVA_METHOD|TRY_REFLECT|READ_FILES|IDENTIFIER|FROM_PROTOBUF|"
    r"TO_PROTOBUF)\b"
)


def spark_problem(key: str, value: str, require_url: Callable[[str], None]) -> str | None:
    """What a setting of `pipeline.spark` would do that is not allowed; None: nothing.

    Args:
        key: its name.
        value: its value; a secret is a reference.
        require_url: raises if an address is not allowed.
    """
    if _PLAIN.fullmatch(key):
        return None if _PLAIN_VALUE.fullmatch(value) else "a value that is no plain word"
    match = _S3.fullmatch(key)
    if match is None:
        return "a setting that may load or run code"
    name = match["name"]
    if name in _S3_SECRETS:
        return None
    if name in _S3_PLAIN:
        return None if re.fullmatch(r"[A-Za-z0-9.-]{1,40}", value) else "a value that is no plain word"
    if name == "endpoint":
        require_url(value)
        return None
    if name == _S3_PROVIDERS:
        return None if _PROVIDER.fullmatch(value) else "a class"
    return "a setting that may load or run code, or lead elsewhere"


def sql_problem(text: str) -> str | None:
    """What SQL of a transform has that is not allowed; None: nothing."""
    found = _WORDS.search(text.upper())
    return None if found is None else f"SQL with the word `{found[1]}`"

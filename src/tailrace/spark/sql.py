"""Sessions whose SQL is taken as it is written.

Spark replaces `${env:NAME}`, `${spark.x}` and the like in the text of every statement, within quoted names
too: a column of that name would bring the value of an environment variable into a table. Our own sessions are
begun with that switched off (`spark.session`); one that a notebook or a cluster has begun may have it on.
"""

from __future__ import annotations

from pyspark.sql import SparkSession

SUBSTITUTE = "spark.sql.variable.substitute"


def own_session(session: SparkSession) -> SparkSession:
    """A session beside `session`, with settings and views of its own, that replaces nothing in statements."""
    own = session.newSession()
    own.conf.set(SUBSTITUTE, "false")
    return own

"""Sessions that substitute no variables in SQL.

Spark replaces `${env:NAME}`, `${spark.x}` and the like in the text of every statement, even in quoted names:
a column of that name would bring the value of an environment variable into a table. Our own sessions start
with substitution off (`spark.session`); in a session of a notebook or a cluster it may be on.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from types import MappingProxyType

from pyspark.sql import SparkSession

SUBSTITUTE = "spark.sql.variable.substitute"


def own_session(session: SparkSession) -> SparkSession:
    """A new session next to `session`, with its own settings and views, that substitutes no variables."""
    own = session.newSession()
    own.conf.set(SUBSTITUTE, "false")
    return own


class OwnSessions(threading.local):
    """An own session for each thread, so that settings and views of one do not reach another.

    Args:
        session: the session next to which they are.
        settings: what each of them is set to.
    """

    def __init__(self, session: SparkSession, settings: Mapping[str, str] = MappingProxyType({})) -> None:
        #: The present thread's.
        self.current = own_session(session)
        for name, value in settings.items():
            self.current.conf.set(name, value)

"""XA transactions whose commit is in the log but may not have reached the engine.

MariaDB ends an XA transaction in the engine after the commit's event is in the log, and outside of the order
in which the log's other transactions commit: even a snapshot taken `WITH CONSISTENT SNAPSHOT` may not show
a transaction that the log had committed at its `binlog_snapshot_position`. Until the engine is done, XA
RECOVER lists the transaction:

    log      ... | XA COMMIT x | ... P ...
    engine   x is prepared, listed ────────────┤ x is committed, visible

So every transaction up to P is visible once XA RECOVER lists none that the log committed up to P. MySQL
behaves alike, and `log_status` too counts such a commit in its position. But a GTID is executed only when the
engine is done: with GTIDs the wait for them is enough, and this module sends no query.

Once true it stays true: the driver waits before it hands out splits as of P, tasks need not.

A MariaDB that crashes in between restarts with the transaction prepared, though its log has the commit: it
has then lost rows that its replicas have. No snapshot can be exact until the transaction is committed again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from tailrace.config.options import SourceOptions
from tailrace.errors import TransientSourceError
from tailrace.sources.mysql.binlog.visibility import poll
from tailrace.sources.mysql.connection import ReconnectingConnection
from tailrace.sources.mysql.position import MySqlPosition
from tailrace.sources.mysql.wire.rare.xa import XaMark, XaStep
from tailrace.sources.mysql.xa.prepared import SHOWN_XIDS, last_marks, listed_xids

#: How long transactions may be in the log before the engine has committed them, seconds.
_WAIT_S = 60.0
#: How long to wait before searching the log for listed transactions: most have ended by then.
_SHORT_S = 0.5
_DOING = "waiting for XA transactions that are being committed"

#: The marks between two positions in log order, None if they are not, or no longer, known.
Marks = Callable[[MySqlPosition, MySqlPosition], Iterable[XaMark] | None]


class EndingTransactions:
    """XA transactions that the log has committed and the engine has not, along one stream's positions."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._connection = ReconnectingConnection(options, _DOING)
        self._upto: MySqlPosition | None = None
        #: Xids that the log committed up to there and that may still be listed.
        self._ending: set[str] = set()

    def wait(self, position: MySqlPosition, marks: Marks) -> None:
        """Return when all that the log committed up to `position` is committed in the engine.

        Args:
            position: a transaction boundary.
            marks: the marks between two positions.

        Raises:
            PreflightError: XA transactions are in use, and the user may not see them.
            SourceError: the server does not list them.
            TransientSourceError: the server was unreachable, or has not ended them after a minute.
        """
        if position != self._upto:
            new = marks(self._upto, position) if self._upto is not None else None
            if new is None:
                self._ending = self._ending_at(position)
            else:
                for mark in new:
                    # an xid that is prepared again was free
                    (self._ending.add if mark.step is XaStep.COMMITS else self._ending.discard)(mark.xid)
            self._upto = position
        if not self._are_gone(self._ending, _WAIT_S):
            shown = sorted(self._ending)[:SHOWN_XIDS]
            raise TransientSourceError(
                f"XA transactions that the log committed up to `{position}` are not visible yet",
                f"waited {_WAIT_S:g} s for {'; '.join(shown)}",
                "look at semi-synchronous replicas that do not answer; if the server crashed, it lost what "
                f"its log and its replicas have: {'; '.join(f'XA COMMIT {xid}' for xid in shown)}",
                code="TR-4301",
            )

    def _ending_at(self, position: MySqlPosition) -> set[str]:
        """The transactions being ended at `position`, found in the log."""
        unknown = self._listed() - {transaction.xid for transaction in position.prepared}
        if self._are_gone(unknown, _SHORT_S):
            return set()
        found = last_marks(self._options, position, unknown)
        return {xid for xid, (_, mark) in found.items() if mark.step is XaStep.COMMITS}

    def _are_gone(self, xids: set[str], timeout_s: float) -> bool:
        """Drop from `xids` those no longer listed; return whether none remains within the timeout."""

        def are_gone() -> bool:
            if xids:
                xids.intersection_update(self._listed())
            return not xids

        return poll(are_gone, timeout_s)

    def _listed(self) -> set[str]:
        return self._connection.run(listed_xids, _DOING)

    def forget(self) -> None:
        """Forget all xids: another server answers."""
        self._upto, self._ending = None, set()
        self.close()

    def close(self) -> None:
        """Drop the connection."""
        self._connection.close()

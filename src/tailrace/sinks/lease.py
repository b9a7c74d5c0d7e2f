"""The numbers of leases in targets: who has lost the right to run a pipeline writes nothing more.

A pipeline that `tailrace serve` runs has one owner at a time, and each owner has a lease with a number above
those of all owners before (docs/design/0014-control-plane.md). The owner's commits bear the number. A target
that has one of a newer lease refuses those of an older one: in the transaction that writes, or by a commit of
its own that lets all commits fail which began before it.

Number 0 means that no server runs the pipeline: nothing is checked, and what a target has noted stays.
"""

from __future__ import annotations

from tailrace.errors import LeaseLostError


def require_newest(target: str, noted: int, lease: int) -> None:
    """Refuse to write for an owner that has lost its lease.

    Args:
        target: what is to be written.
        noted: the newest lease under which it was written; 0: none.
        lease: the writer's; 0: no server runs the pipeline.

    Raises:
        LeaseLostError: another owner has written.
    """
    if 0 < lease < noted:
        raise lost(target, noted, lease)


def lost(target: str, noted: int, lease: int) -> LeaseLostError:
    """The error of an owner that is refused, see `require_newest`."""
    return LeaseLostError(
        f"target `{target}` is written by another server",
        f"lease {noted} has written it, this process has lease {lease}",
        "nothing to do: the server with the newer lease runs the pipeline",
        code="TR-8470",
    )

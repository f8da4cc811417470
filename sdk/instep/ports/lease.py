"""The right to write for a consumer, which one process has at a time."""

from __future__ import annotations

from typing import Protocol

from instep.coordination.lease import LeaseState

__all__ = ["Lease"]


class Lease(Protocol):
    """The right to write for a consumer, which one process has at a time
    (`instep.coordination.lease` decides who tries, and when).

    Promised: of two processes that `acquire` the lease as they saw it, one gets it; whoever has
    lost it cannot commit any more. Not promised: that the clocks of processes agree. All raise
    `SinkError`. Cancelling one leaves the lease as it was or as it would have been: ask `read`
    which.
    """

    holder: str
    """What others call this process."""
    lease_s: float
    """Within how long of its last sign of life a holder is succeeded."""

    async def read(self) -> LeaseState:
        """The lease as it is; waits for no writer."""
        ...

    async def acquire(self, seen: LeaseState) -> LeaseState | None:
        """Become the holder, if epoch and beat are as seen; None where they are not. From then on
        every transaction of the sink carries the new epoch, and raises `LeaseLostError` once it is
        no longer the lease's.
        """
        ...

    async def renew(self) -> LeaseState:
        """Say that the holder lives; returns the lease as it is then. Raises
        `LeaseLostError`.
        """
        ...

    async def release(self) -> None:
        """Let others take it, after what is being committed. Raises `LeaseLostError`."""
        ...

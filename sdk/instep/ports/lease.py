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
    """The name of this process, as other processes see it."""
    lease_s: float
    """How long after its last sign of life a holder may be replaced, in seconds."""

    async def read(self) -> LeaseState:
        """The lease as it is; waits for no writer."""
        ...

    async def acquire(self, seen: LeaseState) -> LeaseState | None:
        """Become the holder, if epoch, nonce and beat are as seen; None where they are not. From
        then on every transaction of the sink carries the new epoch and nonce, and raises
        `LeaseLostError` once they are no longer the lease's.
        """
        ...

    def adopt(self, taken: LeaseState) -> None:
        """Write under the lease as another process has acquired it, which renews and releases it:
        for the worker processes of its holder. Does no I/O; each transaction checks the lease.
        """
        ...

    async def renew(self) -> LeaseState:
        """Record a sign of life of the holder; returns the renewed lease. Raises
        `LeaseLostError`.
        """
        ...

    async def release(self) -> None:
        """Give the lease up after the commit under way, so that others can acquire it. Raises
        `LeaseLostError`.
        """
        ...

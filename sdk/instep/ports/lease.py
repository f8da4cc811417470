"""The right to write for a consumer, which one process has at a time."""

from __future__ import annotations

from typing import Protocol

from instep.coordination.lease import LeaseState

__all__ = ["Lease"]


class Lease(Protocol):
    """The right to write for a consumer, which one process has at a time
    (`instep.coordination.lease`).

    All raise `SinkError`.
    """

    holder: str
    """What others call this process."""
    lease_s: float
    """Within how long of its last sign of life a holder is succeeded."""

    async def read(self) -> LeaseState:
        """The lease as it is; waits for no writer."""
        ...

    async def acquire(self, seen: LeaseState) -> LeaseState | None:
        """Become the holder, if epoch and beat are as seen. From then on every transaction of the
        sink carries the new epoch, and raises `LeaseLostError` once it is no longer the lease's.
        """
        ...

    async def renew(self) -> LeaseState:
        """Say that the holder lives. Raises `LeaseLostError`."""
        ...

    async def release(self) -> None:
        """Let others take it, after what is being committed. Raises `LeaseLostError`."""
        ...

"""Drives active/standby operation of a consumer: stands by, takes over, hands over.

The decisions are made by `instep.coordination.lease`; the guarantee is given by the sink, which
refuses the writes of a process that lost the lease.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterator

from instep.coordination.lease import LeaseContender, LeaseState, Role
from instep.errors import InstepError, LeaseLostError, SinkError
from instep.ports.lease import Lease

__all__ = ["ActiveStandby"]

Report = Callable[[str, str], None]
"""Called with the kind and the text of an event."""


class ActiveStandby:
    """One of several processes, of which one is active. Cancelling `run` releases the lease."""

    def __init__(self, lease: Lease, *, report: Report) -> None:
        self._lease = lease
        self._report = report
        self._contender = LeaseContender(lease.holder, lease.lease_s)
        self._handing_over = asyncio.Event()
        self.last_error = ""
        """Why the lease cannot be read, taken or renewed; empty if it can."""
        self._read_s: float | None = None

    def __repr__(self) -> str:
        return f"<Pair {self._contender!r}>"

    @property
    def role(self) -> Role:
        """The role of this process now."""
        return self._contender.role

    @property
    def seen(self) -> LeaseState:
        """The lease as last read."""
        return self._contender.seen

    @property
    def lease_s(self) -> float:
        """How long the lease lasts without being renewed, in seconds."""
        return self._lease.lease_s

    def read_age_s(self) -> float | None:
        """How long ago the lease was read, taken or renewed last, in seconds; None: never yet."""
        return None if self._read_s is None else _now_s() - self._read_s

    async def run(self, work: Callable[[], Awaitable[None]]) -> None:
        """Do `work` whenever, and only while, this process holds the lease, until cancelled.

        Raises the errors of `work`, and a `SinkError` that is not retriable.
        """
        while True:
            await self._acquire()
            try:
                await self._hold(work)
            except LeaseLostError:
                self._contender.lost()
                self._report("superseded", "another process holds the lease; standing by")
            finally:
                if self.role is Role.ACTIVE:
                    await self._release()

    def handover(self) -> None:
        """Release the lease after the commit under way."""
        self._handing_over.set()

    # -- standing by -----------------------------------------------------------------------------

    async def _acquire(self) -> None:
        contender = self._contender
        reported = ""
        while True:
            with self._noted():
                seen = await self._lease.read()
                if seen.holder and seen.holder != reported:
                    reported = seen.holder
                    self._report("standby", f"the lease is held by {reported}")
                if contender.saw(seen, _now_s()):
                    taken = await self._lease.acquire(seen)
                    if taken is not None:
                        contender.took(taken)
                        self._handing_over.clear()
                        before = seen.holder or "nobody"
                        self._report("active", f"epoch {taken.epoch}; before: {before}")
                        return
            await asyncio.sleep(contender.read_every_s)

    # -- holding it ------------------------------------------------------------------------------

    async def _hold(self, work: Callable[[], Awaitable[None]]) -> None:
        """Run `work`; returns when the lease is to be released. Raises `LeaseLostError`."""
        working = asyncio.ensure_future(work())
        renewing = asyncio.create_task(self._renew())
        try:
            await asyncio.wait({working, renewing}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (working, renewing):
                task.cancel()
            await asyncio.gather(working, renewing, return_exceptions=True)
        for task in (renewing, working):
            if not task.cancelled():
                task.result()

    async def _renew(self) -> None:
        """Renew the lease; returns when another process asks for it."""
        contender = self._contender
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(contender.renew_every_s):
                    await self._handing_over.wait()
                return
            with self._noted():
                if (await self._lease.renew()).asked:
                    return

    async def _release(self) -> None:
        # If the store is unreachable or the holder has changed, there is nothing to release.
        with contextlib.suppress(InstepError):
            await self._lease.release()
            self._report("gave-up", "the lease was given up")
        self._contender.gave_up(_now_s())

    @contextlib.contextmanager
    def _noted(self) -> Iterator[None]:
        """Suppress retriable errors, and keep the last one in `last_error`."""
        try:
            yield
        except SinkError as error:
            if not error.retriable:
                raise
            self.last_error = str(error)
        else:
            self.last_error, self._read_s = "", _now_s()


def _now_s() -> float:
    """Monotonic time in seconds: the loop's time, virtual in simulations."""
    return asyncio.get_running_loop().time()

"""The driver of a consumer that has others beside it: stands by, takes over, hands over.

It decides nothing (`instep.coordination.lease` does) and ensures nothing (the sink refuses whoever
lost the lease).
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
"""Called with kind and text of what happened."""


class ActiveStandby:
    """One process's part in a pair, or in any number. Cancelling `run` gives the lease up."""

    def __init__(self, lease: Lease, *, report: Report) -> None:
        self._lease = lease
        self._report = report
        self._contender = LeaseContender(lease.holder, lease.lease_s)
        self._handing_over = asyncio.Event()
        self.last_error = ""
        """Why the lease cannot be looked at, taken or kept; empty when nothing hinders it."""

    def __repr__(self) -> str:
        return f"<Pair {self._contender!r}>"

    @property
    def role(self) -> Role:
        """Which of the pair this process is now."""
        return self._contender.role

    @property
    def seen(self) -> LeaseState:
        """The lease, as last seen."""
        return self._contender.seen

    async def run(self, work: Callable[[], Awaitable[None]]) -> None:
        """Do `work` whenever, and only while, this process holds the lease, until cancelled.

        Raises what `work` raises, and `SinkError` that trying again cannot help.
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
        """Give the lease up as soon as what is being committed is committed."""
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
        """Returns when the lease is to be given up. Raises `LeaseLostError`."""
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
        """Returns when somebody asks for the lease to be given up."""
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
        # A store that is away, or another holder, makes it superfluous.
        with contextlib.suppress(InstepError):
            await self._lease.release()
            self._report("gave-up", "the lease was given up")
        self._contender.gave_up(_now_s())

    @contextlib.contextmanager
    def _noted(self) -> Iterator[None]:
        """Let errors pass that another try may mend."""
        try:
            yield
        except SinkError as error:
            if not error.retriable:
                raise
            self.last_error = str(error)
        else:
            self.last_error = ""


def _now_s() -> float:
    """Monotonic; virtual where the loop's time is."""
    return asyncio.get_running_loop().time()

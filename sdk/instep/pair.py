"""The driver of a consumer that has others beside it: stands by, takes over, hands over.

It decides nothing (`instep.lease` does) and ensures nothing (the sink refuses whoever lost the
lease).
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterator

from instep.errors import InstepError, LeaseLostError, SinkError
from instep.lease import Contender, LeaseState, Role
from instep.ports import Lease

__all__ = ["Pair"]

Tell = Callable[[str, str], None]
"""Called with kind and text of what happened."""


class Pair:
    """One process's part in a pair, or in any number. Cancelling `run` gives the lease up."""

    def __init__(self, lease: Lease, *, tell: Tell) -> None:
        self._lease = lease
        self._tell = tell
        self._contender = Contender(lease.holder, lease.lease_s)
        self._handing_over = asyncio.Event()
        self.last_error = ""
        """Why the lease cannot be looked at, taken or kept; empty when nothing hinders it."""

    def __repr__(self) -> str:
        return f"<Pair {self._contender!r}>"

    @property
    def role(self) -> Role:
        """What this process does."""
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
            await self._take()
            try:
                await self._hold(work)
            except LeaseLostError:
                self._contender.lost()
                self._tell("superseded", "another process holds the lease; standing by")
            finally:
                if self.role is Role.ACTIVE:
                    await self._give_up()

    def handover(self) -> None:
        """Give the lease up as soon as what is being committed is committed."""
        self._handing_over.set()

    # -- standing by -----------------------------------------------------------------------------

    async def _take(self) -> None:
        contender = self._contender
        told = ""
        while True:
            with self._noted():
                seen = await self._lease.look()
                if seen.holder and seen.holder != told:
                    told = seen.holder
                    self._tell("standby", f"the lease is held by {told}")
                if contender.saw(seen, _now_s()):
                    taken = await self._lease.take(seen)
                    if taken is not None:
                        contender.took(taken)
                        self._handing_over.clear()
                        before = seen.holder or "nobody"
                        self._tell("active", f"epoch {taken.epoch}; before: {before}")
                        return
            await asyncio.sleep(contender.look_every_s)

    # -- holding it ------------------------------------------------------------------------------

    async def _hold(self, work: Callable[[], Awaitable[None]]) -> None:
        """Returns when the lease is to be given up. Raises `LeaseLostError`."""
        working = asyncio.ensure_future(work())
        beating = asyncio.create_task(self._beat())
        try:
            await asyncio.wait({working, beating}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (working, beating):
                task.cancel()
            await asyncio.gather(working, beating, return_exceptions=True)
        for task in (beating, working):
            if not task.cancelled():
                task.result()

    async def _beat(self) -> None:
        """Returns when somebody asks for the lease to be given up."""
        contender = self._contender
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(contender.beat_every_s):
                    await self._handing_over.wait()
                return
            with self._noted():
                if (await self._lease.beat()).asked:
                    return

    async def _give_up(self) -> None:
        # A store that is away, or another holder, makes it superfluous.
        with contextlib.suppress(InstepError):
            await self._lease.give_up()
            self._tell("gave-up", "the lease was given up")
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

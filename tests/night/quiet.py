"""What is planned in a night, and must fire nothing."""

from __future__ import annotations

import signal
from functools import partial
from typing import Final

from tests.night.faults import Fault, Pair
from tests.night.site import until

__all__ = ["QUIETS", "Quiet"]


class Quiet(Fault):
    """A silent network: nothing is done at all."""

    name = "silent network"

    async def play(self) -> None:
        """What is planned."""


class PlannedRestart(Quiet):
    """The process is stopped and started anew, three times."""

    name = "planned restart"

    async def play(self) -> None:
        for _ in range(3):
            await self.consumer.end()
            self.consumer.start()
            await self.consumer.ready()
            await self.night.pass_s(300)


class Reload(Quiet):
    """The configuration is changed while it is used, once in five minutes."""

    name = "reload"

    async def play(self) -> None:
        for number in range(6):
            self.consumer.settings["reconnect_max_s"] = 2.0 + number
            self.consumer.write()
            told = await self.consumer.command("reload", str(self.consumer.file))
            assert "settings.reconnect_max_s" in told, told
            await self.night.pass_s(300)


class Handover(Quiet, Pair):
    """The active process of a pair hands over, and gets it back."""

    name = "handover"

    async def play(self) -> None:
        for _ in range(2):
            await self.consumer.command("handover", str(self.consumer.file))
            await self.night.pass_s(600)


class RollingUpgrade(Quiet, Pair):
    """Of a pair, the standby is started anew, then the active one: somebody always follows."""

    name = "rolling upgrade"

    def _holds(self, suffix: str) -> bool:
        page = self.consumer if suffix == "a" else self.standby
        return f'instep_consumer_lease_held{{consumer="{self.name}"}} 1' in page.page("/metrics")[1]

    async def play(self) -> None:
        for one, other in ((self.standby, "a"), (self.consumer, "b")):
            await one.end(signal.SIGTERM)
            await until(partial(self._holds, other), 60, f"{other} is active")
            one.start()
            await one.ready()
            await self.night.pass_s(300)


QUIETS: Final[tuple[type[Quiet], ...]] = (
    Quiet,
    PlannedRestart,
    Reload,
    Handover,
    RollingUpgrade,
)

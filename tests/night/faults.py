"""What goes wrong in a night: one fault each, beside a consumer of its own, with the alerts that
the run book promises for it.

A fault that ends before its alert's time fires nothing (`Fault.brief`); one that goes on fires each
of its alerts and no other; each is over when the fault is.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sqlite3
import subprocess
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Final

import psycopg

from tests.night.site import Consumer, ProviderProcess, didcomm_source, free_port
from tests.postgres_kit import Server

__all__ = ["CAN_MOUNT", "FAULTS", "Fault", "Night", "Pair"]

_BIG = {"sweep_guard_records": 10}
"""The guard is for large sweeps, and the network of the night is small."""


class Night:
    """What all faults of a night share."""

    def __init__(self, folder: Path, scale: float, server: Server | None) -> None:
        self.folder = folder
        self.scale = scale
        self.server = server
        self.stack = ExitStack()

    async def pass_s(self, seconds: float) -> None:
        """Let so many seconds of the night pass."""
        await asyncio.sleep(seconds / self.scale)


class Fault:
    """One fault. Times are seconds of the night, as in the run book."""

    name: str
    alerts: tuple[tuple[str, float], ...] = ()
    """What it fires, each with how long after the beginning at the soonest."""
    also: tuple[str, ...] = ()
    """What it may fire, too, as chance has it."""
    brief: tuple[str, float, float] | None = None
    """An alert, how long the fault lasts without firing it, and from when on it would."""
    whole_s: float = 0.0
    """How long it lasts at least; it does until all of its alerts have fired."""
    options: tuple[str, ...] = ()
    """Of the provider."""
    needs_server = False
    """Whether it needs a PostgreSQL."""
    needs_mount = False
    """Whether it needs to mount a file system."""

    def __init__(self, night: Night) -> None:
        self.night = night
        self.provider = ProviderProcess(night.folder, self.name, night.scale, *self.options)
        self.consumer = self.made_consumer()
        self.consumers = [self.consumer]

    def made_consumer(self) -> Consumer:
        return Consumer(self.night.folder, self.name, self.night.scale, self.source())

    def source(self) -> dict[str, object]:
        return {"kind": "tapi", "endpoints": [self.provider.url]}

    async def start(self) -> None:
        self.provider.start()
        await self.provider.serving()
        for one in self.consumers:
            one.start()
            await one.ready()

    async def begin(self) -> None:
        """The fault."""
        raise NotImplementedError

    async def end(self) -> None:
        """It is mended, as the run book says."""
        raise NotImplementedError

    def stop(self) -> None:
        """End all processes."""
        for one in self.consumers:
            one.kill()
        self.provider.kill()


class Restart(Fault):
    """The provider is away for two minutes, and has a new log when it is back."""

    name = "restart of the provider"
    brief = ("InstepProviderSilent", 60, 180)

    async def begin(self) -> None:
        await self.provider.end()

    async def end(self) -> None:
        self.provider.start()
        await self.provider.serving()


class Storm(Fault):
    """A thousand changes a minute of the night for a quarter of an hour."""

    name = "storm"
    whole_s = 900

    async def begin(self) -> None:
        self.provider.command("storm", changes_per_s=20 * self.night.scale)

    async def end(self) -> None:
        self.provider.command("storm", changes_per_s=0)


class LongLoss(Fault):
    """The provider refuses everybody, until the log has forgotten what ended meanwhile."""

    name = "long loss"
    # An age at the beginning is that of the last Pong: up to a quarter of a minute, and a scrape.
    alerts: tuple[tuple[str, float], ...] = (
        ("InstepProviderSilent", 150),
        ("InstepDisconnected", 300),
        ("InstepNotReady", 900),
        ("InstepCompactionNear", 480),
        ("InstepRetentionNear", 2_730),
    )
    brief: tuple[str, float, float] | None = ("InstepDisconnected", 200, 300)
    whole_s = 4_000

    async def begin(self) -> None:
        self.provider.command(
            "faults", handshake_status=503, restconf_status=503, restconf_spares_discovery=False
        )
        self.provider.command("drop")

    async def end(self) -> None:
        self.provider.command("faults", handshake_status=None, restconf_status=None)


class SweepHeld(LongLoss):
    """As before, and most of the network is removed meanwhile: the sweep is held."""

    name = "long loss, much removed"
    alerts = (*LongLoss.alerts, ("InstepSweepHeld", 4_000))
    brief = None

    def made_consumer(self) -> Consumer:
        settings = {"alignment": _BIG}
        source = self.source()
        return Consumer(self.night.folder, self.name, self.night.scale, source, settings=settings)

    async def begin(self) -> None:
        await super().begin()
        for key in self.provider.entities():
            # Some are removed with those above them.
            with contextlib.suppress(OSError):
                self.provider.command("delete", key=key)
        await self.night.pass_s(4_000)
        # It can be read again, and somebody has to decide.
        await super().end()

    async def end(self) -> None:
        # Of each stream, as its sweep comes.
        for _ in range(10):
            await self.consumer.command("sweep", "release", str(self.consumer.file))
            await self.night.pass_s(60)
            if self.consumer.page("/readyz")[0] == 200:
                return


class FailOver(Fault):
    """The instance in use ends; the other one is used until it is back, and for longer."""

    name = "fail-over"
    whole_s = 1_200

    def __init__(self, night: Night) -> None:
        self.other = ProviderProcess(night.folder, f"{self.name}, second", night.scale)
        super().__init__(night)

    def source(self) -> dict[str, object]:
        return {"kind": "tapi", "endpoints": [self.provider.url, self.other.url]}

    async def start(self) -> None:
        self.other.start()
        await self.other.serving()
        await super().start()

    async def begin(self) -> None:
        await self.provider.end(signal.SIGKILL)

    async def end(self) -> None:
        self.provider.start()
        await self.provider.serving()

    def stop(self) -> None:
        super().stop()
        self.other.kill()


class Hang(Fault):
    """The provider answers nothing, and closes nothing."""

    name = "hung provider"
    alerts = (("InstepProviderSilent", 150), ("InstepDisconnected", 390))
    brief = ("InstepProviderSilent", 90, 180)

    async def begin(self) -> None:
        self.provider.send(signal.SIGSTOP)

    async def end(self) -> None:
        self.provider.send(signal.SIGCONT)


class HungDatabase(Fault):
    """Another session of PostgreSQL holds locks on what is written."""

    name = "hung database"
    needs_server = True
    alerts = (("InstepStoreAway", 60),)
    brief = ("InstepStoreAway", 45, 70)
    options = ("--storm", "5")

    def made_consumer(self) -> Consumer:
        assert self.night.server is not None
        self._store = self.night.server.create()
        return Consumer(
            self.night.folder, self.name, self.night.scale, self.source(), store=self._store
        )

    async def begin(self) -> None:
        self._session = psycopg.connect(self._store)
        self._session.execute("LOCK TABLE instep_follower, instep_stream IN ACCESS EXCLUSIVE MODE")

    async def end(self) -> None:
        self._session.close()


class FullDisk(Fault):
    """The file system of the store has no room left."""

    name = "full disk"
    needs_mount = True
    alerts = (("InstepStoreAway", 60),)
    brief = ("InstepStoreAway", 45, 70)
    options = ("--storm", "5")

    def made_consumer(self) -> Consumer:
        disk = self.night.folder / "disk"
        disk.mkdir()
        self.night.stack.enter_context(_small_disk(disk))
        self._filler = disk / "filler"
        store = f"sqlite:///{disk}/full.db"
        return Consumer(self.night.folder, self.name, self.night.scale, self.source(), store=store)

    async def begin(self) -> None:
        with self._filler.open("wb", buffering=0) as filler, contextlib.suppress(OSError):
            while True:
                filler.write(bytes(4096))

    async def end(self) -> None:
        self._filler.unlink()


@contextlib.contextmanager
def _small_disk(folder: Path) -> Iterator[None]:
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64m", "tmpfs", str(folder)], check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


class Poison(Fault):
    """Each third record is no JSON."""

    name = "poison records"
    alerts = (("InstepQuarantined", 0),)
    whole_s = 300
    options = ("--storm", "5")

    async def begin(self) -> None:
        self.provider.command("faults", malformed_every=3)

    async def end(self) -> None:
        self.provider.command("faults", malformed_every=None)


class Gap(Fault):
    """A sender loses a message for good; the next ones wait behind it."""

    name = "gap"
    alerts = (("InstepGap", 900),)
    brief = ("InstepGap", 800, 900)
    _thread = 0

    def source(self) -> dict[str, object]:
        self._listens = free_port()
        return didcomm_source(self._listens, self.night.scale)

    async def begin(self) -> None:
        self._thread += 1
        for number in (1, 3):
            self.say(number)

    async def end(self) -> None:
        self.say(2)

    def say(self, number: int) -> None:
        content = {
            "id": f"{self._thread}-{number}",
            "type": "https://example.org/night/1.0/say",
            "from": "did:example:sender",
            "thid": f"thread-{self._thread}",
            "sender_order": number,
            "body": {},
        }
        request = urllib.request.Request(
            f"http://127.0.0.1:{self._listens}/in",
            json.dumps(content).encode(),
            {"Content-Type": "application/didcomm-plain+json"},
        )
        with urllib.request.urlopen(request, timeout=30) as answer:
            assert answer.status == 202


class Pair(Fault):
    """Two processes, of which one stands by."""

    needs_server = True

    def __init__(self, night: Night) -> None:
        assert night.server is not None
        self._store = night.server.create()
        super().__init__(night)
        self.standby = self._half("b")
        self.consumers.append(self.standby)

    def made_consumer(self) -> Consumer:
        return self._half("a")

    def _half(self, suffix: str) -> Consumer:
        sink = {"lease_s": 30 / self.night.scale, "holder": suffix}
        return Consumer(
            self.night.folder,
            self.name,
            self.night.scale,
            self.source(),
            store=self._store,
            sink=sink,
            suffix=f"-{suffix}",
        )


class DeadStandby(Pair):
    """The standby of a pair ends, and nobody notices."""

    name = "dead standby"
    alerts = (("InstepDown", 120), ("InstepNoStandby", 600))
    brief = ("InstepNoStandby", 400, 600)

    async def begin(self) -> None:
        await self.standby.end(signal.SIGKILL)

    async def end(self) -> None:
        self.standby.start()
        await self.standby.ready()


class DeadConsumer(Fault):
    """The process is killed."""

    name = "dead consumer"
    alerts = (("InstepDown", 120),)
    brief = ("InstepDown", 30, 120)

    async def begin(self) -> None:
        await self.consumer.end(signal.SIGKILL)

    async def end(self) -> None:
        self.consumer.start()
        await self.consumer.ready()


class WrongLogin(Fault):
    """A consumer is added, by a reload, with a login that the provider refuses."""

    name = "refused login"
    alerts = (("InstepFailed", 0), ("InstepNotReady", 900))
    options = ("--token", "right")

    def source(self) -> dict[str, object]:
        return super().source() | {"auth": {"kind": "bearer", "token": "right"}}

    async def _with(self, **others: dict[str, object]) -> None:
        self.consumer.others = others
        self.consumer.write()
        await self.consumer.command("reload", str(self.consumer.file))

    async def begin(self) -> None:
        wrong = {"auth": {"kind": "bearer", "token": "wrong"}}
        await self._with(another=super().source() | wrong)

    async def end(self) -> None:
        await self._with()


class ChangedRow(Fault):
    """Somebody changes a row of the store."""

    name = "changed row"
    alerts = (("InstepEntitiesWrong", 0),)

    def made_consumer(self) -> Consumer:
        settings = {"audit_share": 4.0 * self.night.scale}
        source = self.source()
        return Consumer(self.night.folder, self.name, self.night.scale, source, settings=settings)

    async def begin(self) -> None:
        file = self.consumer.store.removeprefix("sqlite:///")
        with closing(sqlite3.connect(file, timeout=30)) as raw, raw:
            changed = raw.execute(
                "UPDATE instep_entity SET body = CAST(replace(CAST(body AS TEXT), 'ENABLED',"
                " 'LOST') AS BLOB) WHERE instr(body, 'ENABLED') AND rowid IN"
                " (SELECT min(rowid) FROM instep_entity WHERE instr(body, 'ENABLED'))"
            )
            assert changed.rowcount == 1

    async def end(self) -> None:
        await self.consumer.command("audit", str(self.consumer.file), "--repair")


class CutAgain(Fault):
    """A provider that has lost its log closes each connection before the reading is at its end."""

    name = "cut again and again"
    alerts = (("InstepNoProgress", 300),)
    # A connection may be open at a scrape, or between two.
    also = ("InstepDisconnected",)

    async def begin(self) -> None:
        self.provider.command("faults", drop_after_records=20, expire_tokens=True)
        self.provider.command("drop")

    async def end(self) -> None:
        self.provider.command("faults", drop_after_records=None, expire_tokens=False)


FAULTS: Final[tuple[type[Fault], ...]] = (
    Restart,
    Storm,
    LongLoss,
    SweepHeld,
    FailOver,
    Hang,
    HungDatabase,
    FullDisk,
    Poison,
    Gap,
    DeadStandby,
    DeadConsumer,
    WrongLogin,
    ChangedRow,
    CutAgain,
)
CAN_MOUNT: Final = os.geteuid() == 0
"""Whether a file system that is small can be made here."""

"""Reads the configuration again while it is used: takes over what it can, and names the rest.

Nothing is taken over of a file that is wrong. A stream whose consumer is not named by the change
keeps its connection and its token.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Final

import msgspec

from instep.cli.log_lines import set_log_level
from instep.cli.store import chosen_of
from instep.cli.worker import services_of
from instep.config.file import Configuration, ConsumerConfiguration, load
from instep.config.plugins import check, check_publisher
from instep.config.reload import Difference, differences
from instep.errors import InstepError
from instep.runtime.group import Group
from instep.runtime.health import ConsumerEvent
from instep.runtime.lifecycle import Service

__all__ = ["ReloadOutcome", "Reloader"]

_log: Final = logging.getLogger("instep.cli")


class ReloadOutcome(msgspec.Struct, frozen=True):
    """How a reload has ended."""

    at_us: int
    reloaded: bool
    """False: the file was refused, and all goes on as before."""
    text: str


class Reloader:
    """Reloads the configuration of a group whenever it is asked to."""

    def __init__(
        self,
        configuration: Configuration,
        consumer: str | None,
        group: Group,
        services: dict[str, Sequence[Service]],
        *,
        started: Callable[[Service], None],
        tell: Callable[[ConsumerEvent], None],
    ) -> None:
        """`services` are those of each consumer; `started` is called before a new one is started,
        and `tell` with the one event of each reload.
        """
        self._path: Path = configuration.path
        self._applied = configuration
        """What is in force: where a key needs a restart, as it was before."""
        self._consumer = consumer
        self._group = group
        self._services = services
        self._started = started
        self._tell = tell
        self._wanted = asyncio.Event()
        self.last: ReloadOutcome | None = None
        """How the last one has ended; None: there was none."""

    def request(self) -> None:
        """Reload soon. Requests that come while one is done are one."""
        self._wanted.set()

    async def run(self) -> None:
        """Reload when asked to, until cancelled."""
        while True:
            await self._wanted.wait()
            self._wanted.clear()
            await self.reload()

    async def reload(self) -> ReloadOutcome:
        """Read, check, take over. Never raises for what is wrong with the file."""
        kind, reloaded = "reloaded", True
        try:
            # Reading plug-ins' tables may take a while: the loop goes on.
            after = await asyncio.to_thread(self._read)
            chosen = {one.name: one for one in chosen_of(after, self._consumer, or_none=True)}
            new = {
                name: services_of(one) for name, one in chosen.items() if name not in self._services
            }
        except InstepError as error:
            kind, reloaded, text = "reload-refused", False, f"all goes on as before: {error}"
        except Exception as error:  # noqa: BLE001 - told, and logged whole
            # A plug-in may fail in any way: what runs must not end with it.
            _log.exception("a changed configuration cannot be read")
            kind, reloaded, text = "reload-refused", False, f"all goes on as before: {error!r}"
        else:
            text = await self._apply(after, set(chosen), new)
        at_us = time.time_ns() // 1_000
        self.last = ReloadOutcome(at_us, reloaded, text)
        self._tell(ConsumerEvent(at_us, "", "", kind, text))
        return self.last

    def _read(self) -> Configuration:
        after = load(self._path)
        for one in after.consumers:
            check(one)
        for publisher in after.publishers:
            check_publisher(publisher)
        return after

    async def _apply(
        self, after: Configuration, chosen: set[str], new: dict[str, Sequence[Service]]
    ) -> str:
        done: list[str] = []
        restart: list[str] = []
        before = self._applied
        applied = {one.name: one for one in after.consumers}
        for one in differences(before, after):
            if one.after.name not in self._services:
                continue
            taken, left = self._reconfigure(one)
            done += taken
            restart += left
            applied[one.after.name] = _in_force(one, left)
        for name in [name for name in self._services if name not in chosen]:
            for service in self._services.pop(name):
                # It has stopped, whatever its store says to that.
                with suppress(InstepError):
                    await self._group.remove(service)
            done.append(f"{name} was removed")
        for name, services in new.items():
            self._services[name] = services
            for service in services:
                self._started(service)
            # Who follows it begins to listen first.
            await asyncio.sleep(0)
            await self._group.add(*services)
            done.append(f"{name} was added")
        operations = after.operations
        if operations.log_level != before.operations.log_level:
            set_log_level(operations.log_level)
            done.append("operations.log_level")
        if operations.listen != before.operations.listen:
            restart.append("operations.listen")
            operations = msgspec.structs.replace(operations, listen=before.operations.listen)
        publishers = after.publishers
        if publishers != before.publishers:
            restart.append("publishers")
            publishers = before.publishers
        order = (applied[one.name] for one in after.consumers)
        self._applied = replace(
            after, consumers=tuple(order), operations=operations, publishers=publishers
        )
        text = "; ".join(done) or "nothing to take over"
        return f"{text}; needs a restart: {', '.join(restart)}" if restart else text

    def _reconfigure(self, one: Difference) -> tuple[list[str], list[str]]:
        """Let the services of a consumer take over what they can. Returns the keys that they have
        taken, and those that need a restart.
        """
        name, services = one.after.name, self._services[one.after.name]
        changed = {f"settings.{key}" for key in one.settings}
        changed |= {f"source.{key}" for key in one.source}
        taken = set(changed)
        for service in services:
            options = one.after.source.options if one.source else None
            left = service.reconfigure(one.after.settings, options, one.after.source.where)
            taken = {key for key in taken if not key.startswith(tuple(left))}
        rest = sorted({*(changed - taken), *one.restart})
        return [f"{name}: {key}" for key in sorted(taken)], [f"{name}: {key}" for key in rest]


def _in_force(one: Difference, left: Sequence[str]) -> ConsumerConfiguration:
    """The configuration of a consumer after some keys were not taken over: what differs still is
    told by the next reload, too.
    """
    if not left:
        return one.after
    kept = {text.partition(": ")[2] for text in left}
    source = one.before.source if any(key.startswith("source.") for key in kept) else None
    settings = one.before.settings if any(key.startswith("settings.") for key in kept) else None
    return replace(
        one.before,
        source=source or one.after.source,
        settings=settings or one.after.settings,
    )

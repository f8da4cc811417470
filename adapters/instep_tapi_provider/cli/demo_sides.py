"""Both sides of the demo: the provider, the consumer with its store, and how they differ."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable
from typing import Any, Final, NamedTuple

from instep.errors import InstepError
from instep.ports.reader import StoreReader
from instep.runtime.consumer import Consumer
from instep.runtime.health import ConsumerState
from instep_tapi_provider import Provider
from instep_tapi_provider.cli.demo_compare import Comparison, compare

__all__ = ["PATIENCE_S", "Counts", "Phantom", "Sides"]

PATIENCE_S: Final = 30.0


class Counts(NamedTuple):
    """Records appended, sent and received so far, resumes by token, and readings from the oldest
    record: a probe (A2) is one of them.
    """

    appended: int
    sent: int
    resumes: int
    received: int
    from_oldest: int

    def since(self, before: Counts) -> Counts:
        """The difference to an earlier count."""
        return Counts(*(now - then for now, then in zip(self, before, strict=True)))


class Phantom(NamedTuple):
    """An entity that only the store holds."""

    stream: str
    key: str
    entity_class: str
    name: str


class Sides:
    """A provider, the consumer that follows it, and the store that the consumer writes."""

    def __init__(self, provider: Provider, consumer: Consumer, reader: StoreReader) -> None:
        self.provider = provider
        self.consumer = consumer
        self._reader = reader

    def counts(self) -> Counts:
        """All streams together."""
        streams = self.provider.streams
        return Counts(
            appended=sum(stream.log.next_ordinal for stream in streams),
            sent=sum(stream.counters.records_sent for stream in streams),
            resumes=sum(stream.counters.resumes_by_token for stream in streams),
            received=sum(stream.records for stream in self.consumer.health().streams),
            from_oldest=sum(stream.counters.starts_from_oldest for stream in streams),
        )

    def attempts(self) -> dict[str, int]:
        """Stream → number of its alignment attempt."""
        return {stream.stream: stream.attempt for stream in self.consumer.health().streams}

    async def disconnect(self) -> None:
        """Cut all connections, and refuse new ones until `reconnect`."""
        self.provider.set_faults(handshake_status=503)
        self.provider.drop_clients()
        await self.until(
            lambda: not any(s.connected for s in self.consumer.health().streams), "the loss"
        )

    def reconnect(self) -> None:
        """Let connections come again."""
        self.provider.set_faults(handshake_status=None)

    def remove_site(self) -> tuple[str, int]:
        """Delete the first site and all that refers to it. Returns its name and how many entities
        ended.
        """
        nodes = self.provider.context.nodes
        site = next(node for node in nodes.values() if node.cls == "NODE")
        uuid = site.uuid.encode()
        referring = [
            node.key
            for node in nodes.values()
            if node.cls != "TOPOLOGY" and node is not site and uuid in node.body()
        ]
        name, before = _name(site.body()), self._stated()
        for key in (*referring, site.key):
            if key in nodes:
                self.provider.delete(key)
        return name, before - self._stated()

    def forgotten(self, phantom: Phantom) -> bool:
        """Whether the provider's log has no record of the entity any more, not even its end."""
        return self.provider.stream(phantom.stream).log.latest(phantom.key) is None

    async def compared(self) -> dict[str, Comparison]:
        """By class: what the store holds against what the provider states."""
        found: dict[str, Comparison] = {}
        for stream in self.provider.streams:
            held = {
                one.key: (one.entity_class, one.body)
                async for one in self._reader.entities(stream=stream.stream_id)
            }
            found |= compare(self.provider.entities(stream.stream_id), held)
        return found

    async def phantoms(self) -> list[Phantom]:
        """The entities that the store holds and the provider does not."""
        found: list[Phantom] = []
        for stream in self.provider.streams:
            stated = self.provider.entities(stream.stream_id)
            async for one in self._reader.entities(stream=stream.stream_id):
                if one.key not in stated:
                    name = _name(one.body) or one.key
                    found.append(Phantom(one.stream, one.key, one.entity_class, name))
        return found

    async def agreement(self) -> None:
        """Wait until both sides agree and nothing is under way, for `PATIENCE_S` at most."""
        deadline_s = time.monotonic() + PATIENCE_S
        before = None
        while time.monotonic() < deadline_s:
            now = self.counts()
            connected = all(stream.connected for stream in self.consumer.health().streams)
            if connected and now == before and await self._agree():
                return
            before = now
            await asyncio.sleep(0.2)

    async def _agree(self) -> bool:
        return all(one.agrees for one in (await self.compared()).values())

    async def until(self, condition: Callable[[], bool], what: str) -> None:
        """Wait until a condition holds. Raises `InstepError` when it does not in time."""
        deadline_s = time.monotonic() + PATIENCE_S
        while not condition():
            health = self.consumer.health()
            if health.state is ConsumerState.FAILED:
                raise InstepError(health.error, where="the consumer of the demo")
            if time.monotonic() > deadline_s:
                raise InstepError(f"{what} did not come in {PATIENCE_S:.0f} s", where="the demo")
            await asyncio.sleep(0.05)

    def _stated(self) -> int:
        return sum(len(stream.entities) for stream in self.provider.streams)


def _name(body: bytes) -> str:
    """A name for people: the first name of the entity, else the native name of an alarm, else its
    uuid.
    """
    entity: dict[str, Any] = json.loads(body or b"{}")
    names = entity.get("name")
    if isinstance(names, list) and names and isinstance(names[0], dict):
        return str(names[0].get("value", ""))
    return str(entity.get("condition-native-name") or entity.get("uuid", ""))

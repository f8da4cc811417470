"""The provider: a TAPI context served over the network, for clients to be tried against.

async with Provider(Context.load(path), ProviderSettings(), faults=Faults()) as provider:
    print(provider.url)
    provider.update(key, {"operational-state": "DISABLED"})
"""

import asyncio
import random
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any, Self

from instep.errors import ConfigurationError
from instep_tapi.facts.names import (
    CLASSES_WITHOUT_CONTAINER,
    CONDITION_DETECTOR,
    AlarmDetectorState,
    LogRecordStrategy,
    LogRecordType,
    StreamState,
)
from instep_tapi_provider.clock import ScaledClock
from instep_tapi_provider.context import Context
from instep_tapi_provider.faults import Faults
from instep_tapi_provider.log import random_log_id
from instep_tapi_provider.network.control import control_routes
from instep_tapi_provider.network.server import Server
from instep_tapi_provider.network.site import Site
from instep_tapi_provider.operator import Operator
from instep_tapi_provider.settings import ProviderSettings
from instep_tapi_provider.storm import Storm, StormSettings
from instep_tapi_provider.stream import Counters, Stream

_HOUSEKEEPING_S = 1.0
# Classes that the stream of "all other classes" declares besides those that exist.
_NETWORK_CLASSES = frozenset(
    {
        "TOPOLOGY",
        "NODE",
        "LINK",
        "NODE_EDGE_POINT",
        "CONNECTION_END_POINT",
        "CONNECTION",
        "CONNECTIVITY_SERVICE",
        "SERVICE_INTERFACE_POINT",
    }
)


class Provider:
    """A TR-548 provider. An asynchronous context manager: it serves from entering to leaving.

    `content`: the context to serve; None is an empty one. The provider keeps and changes it.
    `faults`: what it does wrong; the same object can be changed while it runs (`set_faults` wakes
    clients). `log_ids`: gives each log an id, which its tokens have in them. Raises
    ConfigurationError for settings that contradict each other or an address that is taken.
    """

    def __init__(
        self,
        content: Context | None = None,
        settings: ProviderSettings | None = None,
        *,
        faults: Faults | None = None,
        clock: ScaledClock | None = None,
        log_ids: Callable[[], int] = random_log_id,
    ) -> None:
        self.settings = settings or ProviderSettings()
        self.faults = faults or Faults()
        self.clock = clock or ScaledClock(self.settings.time_scale)
        self.context = content or Context({})
        self.rng = random.Random(self.settings.seed)
        self.streams: list[Stream] = self._make_streams(log_ids)
        for stream in self.streams:
            stream.appends = self._appends
        self.operator = Operator(self.context, self.streams, self.clock.now, self.rng)
        site = Site(
            self.settings,
            self.context,
            self.operator,
            self.streams,
            self.faults,
            self.clock.now,
            self.rng,
        )
        self._server = Server(site, control_routes(self) if self.settings.control else [])
        # ST-1.1: streams are ALIGNING until they state everything, then ACTIVE.
        self.operator.populate()
        self._tasks: list[asyncio.Task[None]] = []
        self._storm: asyncio.Task[None] | None = None

    def _make_streams(self, log_ids: Callable[[], int]) -> list[Stream]:
        named = {cls for s in self.settings.streams for cls in s.classes or ()}
        there = {node.cls for node in self.context.nodes.values()}
        # Classes may appear later, so a stream of the rest carries every class that nobody names.
        rest = (_NETWORK_CLASSES | there | {CONDITION_DETECTOR}) - named
        if self.settings.discovery.style.is_2_6:
            # Nothing but what the model can state.
            rest -= CLASSES_WITHOUT_CONTAINER
        return [
            Stream(s, s.log_settings(self.clock), s.classes or rest, self.clock.now, log_ids)
            for s in self.settings.streams
        ]

    def _appends(self, kind: LogRecordType, key: str) -> bool:
        deviation = self.faults.deviation
        return deviation is None or deviation.appended is None or deviation.appended(kind, key)

    @property
    def url(self) -> str:
        """Where clients begin: scheme, host and port, without the RESTCONF root."""
        scheme = "https" if self.settings.tls else "http"
        host = f"[{self.settings.host}]" if ":" in self.settings.host else self.settings.host
        return f"{scheme}://{host}:{self._server.port}"

    async def __aenter__(self) -> Self:
        await self._server.start()
        if self.settings.active_at_start:
            for stream in self.streams:
                stream.state = StreamState.ACTIVE
        self._tasks = [asyncio.create_task(self._housekeep())]
        self._tasks += [
            asyncio.create_task(self._republish_periodically(stream))
            for stream in self.streams
            if stream.settings.record_strategy is LogRecordStrategy.WHOLE_ENTITY_PERIODIC
        ]
        self._tasks += [
            asyncio.create_task(self._inform_periodically(stream, period_s))
            for stream in self.streams
            if (period_s := stream.settings.information_period_s) is not None
        ]
        self._apply_storm()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._storm is not None:
            self._tasks.append(self._storm)
            self._storm = None
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._server.stop()

    async def _housekeep(self) -> None:
        """Compact logs where nothing is appended or read."""
        while True:
            await asyncio.sleep(_HOUSEKEEPING_S)
            for stream in self.streams:
                stream.log.clean()

    async def _republish_periodically(self, stream: Stream) -> None:
        while True:
            await asyncio.sleep(self.clock.real_s(stream.settings.statement_period_s))
            if not self.faults.quiet:
                stream.republish_all()

    async def _inform_periodically(self, stream: Stream, period_s: float) -> None:
        while True:
            await asyncio.sleep(self.clock.real_s(period_s))
            if not self.faults.quiet:
                facts = {"entities": f"{len(stream.entities)}"}
                stream.inform(f"information-{stream.stream_id}", facts, self.clock.now())

    # Changes of the network: see Operator for each.

    def create(self, parent_key: str | None, path: str, value: dict[str, Any]) -> list[str]:
        """Add an entity under a parent; see `Operator.create`."""
        return self.operator.create(parent_key, path, value)

    def update(self, key: str, changes: Mapping[str, Any]) -> None:
        """Merge changes into an entity; see `Operator.update`."""
        self.operator.update(key, changes)

    def delete(self, key: str) -> list[str]:
        """Remove an entity and all below it; see `Operator.delete`."""
        return self.operator.delete(key)

    def raise_alarm(
        self,
        measured_key: str,
        condition: str | None = None,
        *,
        state: AlarmDetectorState = AlarmDetectorState.ACTIVE,
        severity: str = "",
        detector: int = 0,
    ) -> str:
        """Raise an alarm at an entity; see `Operator.raise_alarm`."""
        return self.operator.raise_alarm(
            measured_key, condition, state=state, severity=severity, detector=detector
        )

    def raise_alarms(self, count: int) -> list[str]:
        """Raise so many alarms at random entities that can have them."""
        return self.operator.raise_alarms(count)

    def clear_alarm(self, key: str, *, tombstone_only: bool = False) -> None:
        """Clear an alarm; see `Operator.clear_alarm`."""
        self.operator.clear_alarm(key, tombstone_only=tombstone_only)

    def inform(self, stream: str, key: str, facts: Mapping[str, str]) -> None:
        """Append an information record to a stream; see `Stream.inform`."""
        self.stream(stream).inform(key, facts, self.clock.now())

    # For a test to read.

    def stream(self, stream: str) -> Stream:
        """A stream by its stream-id or uuid. Raises ConfigurationError for an unknown one."""
        for candidate in self.streams:
            if stream in (candidate.stream_id, candidate.uuid):
                return candidate
        known = ", ".join(s.stream_id for s in self.streams)
        raise ConfigurationError(f"no stream is named {stream!r}", hint=f"there are: {known}")

    def entities(self, stream: str) -> dict[str, tuple[str, bytes]]:
        """What a consumer of the stream must hold: entity-key to (class, the entity as JSON)."""
        return {key: (s.cls, s.body) for key, s in self.stream(stream).entities.items()}

    def counters(self, stream: str) -> Counters:
        """What clients did to the stream so far."""
        return self.stream(stream).counters

    # For a test to call.

    def set_faults(self, **values: Any) -> None:
        """Set faults by name while the provider runs."""
        self.faults.set(**values)
        if values.keys() & {"storm_changes_per_s", "storm_keys"}:
            self._apply_storm()
        for stream in self.streams:
            stream.wake()

    def pause(self, stream: str, state: StreamState = StreamState.PAUSED) -> None:
        """Set a stream to PAUSED, or ALIGNING: connected clients get nothing (3.7.2, ST-1.1)."""
        self.stream(stream).state = state

    def activate(self, stream: str) -> None:
        """Set a stream to ACTIVE: its clients go on with the next record."""
        self.stream(stream).state = StreamState.ACTIVE

    def drop_clients(self, stream: str | None = None) -> int:
        """Cut the connections of a stream's clients, or of all. Returns how many."""
        streams = [self.stream(stream)] if stream else self.streams
        listeners = [listener for s in streams for listener in s.listeners]
        for listener in listeners:
            listener.drop()
        return len(listeners)

    def forget_log(self, stream: str | None = None) -> None:
        """Lose the log and fill a new one from current state (ST-1.3 case 2): no token is known
        then.
        """
        for s in [self.stream(stream)] if stream else self.streams:
            s.forget_log()
            s.wake()

    def rename_streams(self, names: Mapping[str, str]) -> None:
        """Offer streams under other ids and other uuids from now on: old id → new id. Their clients
        are dropped, and find nothing under the old address (3.7.2).
        """
        renamed = [(self.stream(old), new) for old, new in names.items()]
        for stream, new in renamed:
            stream.name(new, f"{stream.uuid} ")
        for _, new in renamed:
            self.drop_clients(new)

    def lose_changes(self, stream: str) -> None:
        """Begin an internal loss (ST-1.2): changes happen and do not reach the stream."""
        self.stream(stream).records_changes = False

    def recover(self, stream: str) -> int:
        """End an internal loss: audit the log and repair it (ST-1.2). Returns the records
        appended.
        """
        s = self.stream(stream)
        s.state = StreamState.ALIGNING
        repaired = s.audit()
        s.state = StreamState.ACTIVE
        return repaired

    def revoke_tokens(self) -> None:
        """Make every issued login token invalid."""
        self._server.logins.revoke_all()

    async def restart(self, *, keep_log: bool = True, down_s: float = 0.0) -> None:
        """Stop serving and start again at the same address, with or without the log (ST-1.3)."""
        await self._server.stop()
        if not keep_log:
            self.forget_log()
        if down_s:
            await asyncio.sleep(down_s)
        await self._server.start()

    async def start_storm(self, changes_per_s: float, keys: int | None = None) -> None:
        """Begin an event storm, in place of the one that goes on."""
        self.set_faults(storm_changes_per_s=changes_per_s, storm_keys=keys)

    async def stop_storm(self) -> None:
        """End the event storm, if there is one."""
        self.set_faults(storm_changes_per_s=0.0)

    def _apply_storm(self) -> None:
        """Start or stop the event storm, as the faults are set."""
        if self._storm is not None:
            self._storm.cancel()
            self._storm = None
        rate, keys = self.faults.storm_changes_per_s, self.faults.storm_keys
        if rate:
            self.faults.storm_changes_per_s = 0.0  # unless the storm can begin
            storm = Storm(self.operator, StormSettings(rate, keys), self.rng, self.faults)
            self._storm = asyncio.create_task(storm.run())
            self.faults.storm_changes_per_s = rate

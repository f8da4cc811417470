"""A small protocol whose numbered messages carry entities, after the manner of SDPi: a provider
with a link that fails, and the source that an adapter would write for it.

A session begins with a subscription, and numbers its messages from 1. The provider sends one
message at a time and goes on to the next number when it is confirmed. Current state is read as a
snapshot, which says of which version it is. A relay between both sides may confirm what it loses,
hold a message back, or answer a fault of its own.
"""

from __future__ import annotations

import asyncio
import json
import random
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from enum import StrEnum
from hashlib import blake2b
from typing import NamedTuple

from instep import Mode, Record, RecordType, StreamInfo
from instep.errors import BaselineError, UnreachableError
from instep.model import Start, StreamState
from instep.ports import ReceiptOutcome, Source
from instep.runtime.streams.sequenced_feed import (
    NumberedRecords,
    SequencedFeed,
    SequencedFeedSettings,
)

__all__ = [
    "STREAM",
    "Answer",
    "Content",
    "Fault",
    "Notification",
    "NumberedSource",
    "Provider",
    "Session",
    "Statement",
]

STREAM = "numbered"


class Fault(StrEnum):
    """What happens to one message on its way."""

    DROP = "drop"
    """A relay confirms it and loses it."""
    COPY = "copy"
    """It is sent twice at once."""
    ANSWER_LOST = "answer lost"
    """It arrives, its answer does not: it is sent again."""
    SWAP = "swap"
    """The next one overtakes it."""
    LATE_COPY = "late copy"
    """A copy of it arrives after the next one."""
    STEP_BACK = "step back"
    """It gets a number that was used before."""
    RESET = "reset"
    """The provider numbers from 1 again, in the same session."""
    OTHER_CONTENT = "other content"
    """A relay delivers it and answers a fault: the next content comes under its number."""
    LOST_CONNECTION = "lost connection"
    """The subscription ends."""


REWINDS = frozenset({Fault.STEP_BACK, Fault.RESET, Fault.OTHER_CONTENT})
"""A number that was used is used for something else."""


class Answer(StrEnum):
    """What a consumer answers to a message."""

    CONFIRMED = "2xx"
    FAULT = "fault"
    GONE = "the subscription is unknown"


class Statement(NamedTuple):
    """An entity as of a state of the provider, or its end."""

    key: str
    value: str | None
    version: int


class Content(NamedTuple):
    """What changed with one state of the provider."""

    incarnation: int
    version: int
    statements: tuple[Statement, ...]


class Notification(NamedTuple):
    """A message as it travels."""

    number: int
    content: Content


Deliver = Callable[[Notification], Awaitable[Answer]]


@dataclass
class Session:
    """One subscription: its numbering, and a task that sends."""

    provider: Provider
    deliver: Deliver
    ended: Callable[[], None]
    ordinal: int
    """Counts the sessions of the provider, from 1."""
    number: int = 1
    script: dict[int, Fault] = field(default_factory=dict)
    """Faults by the how-manieth message they happen to."""
    queue: deque[Content] = field(default_factory=deque)
    sent: int = 0
    over: bool = False
    dropped: bool = False
    rewound: bool = False

    def __post_init__(self) -> None:
        self._queued = asyncio.Event()
        self._late: list[Notification] = []
        self._copies: set[asyncio.Task[Answer | None]] = set()
        self.task = asyncio.create_task(self._run())

    def put(self, content: Content) -> None:
        self.queue.append(content)
        self._queued.set()

    def end(self) -> None:
        """The subscription is lost; the consumer learns it."""
        if not self.over:
            self.over = True
            self.provider.leave(self)
            self.ended()

    def stop(self) -> None:
        """Unsubscribe."""
        self.over = True
        self.provider.leave(self)
        for task in (self.task, *self._copies):
            task.cancel()

    async def _run(self) -> None:
        while True:
            content = await self._next()
            if self.over:
                return
            self.sent += 1
            fault = self.script.pop(self.sent, None) or self.provider.draw(self)
            if fault is not None:
                self.provider.injected(fault, self)
            await self._send(content, fault)

    async def _next(self, timeout_s: float | None = None) -> Content:
        async with asyncio.timeout(timeout_s):
            while not self.queue:
                self._queued.clear()
                await self._queued.wait()
        return self.queue.popleft()

    async def _send(self, content: Content, fault: Fault | None) -> None:
        if fault is Fault.LOST_CONNECTION:
            self.end()
            return
        if fault is Fault.RESET:
            self.number = 1
        elif fault is Fault.STEP_BACK:
            self.number = max(1, self.number - self.provider.rng.randint(2, 4))
        notification = Notification(self.number, content)
        if fault is Fault.SWAP:
            await self._swap(notification)
            return
        self.number += 1
        if fault is Fault.DROP:
            return
        if fault is Fault.COPY:
            self._send_copy(notification)
        elif fault is Fault.ANSWER_LOST:
            await self._once(notification)
        await self._until_confirmed(notification)
        if fault is Fault.OTHER_CONTENT:
            self.number -= 1
        late, self._late = self._late, [notification] if fault is Fault.LATE_COPY else []
        for one in late:
            self._send_copy(one)

    async def _swap(self, notification: Notification) -> None:
        try:
            following = Notification(self.number + 1, await self._next(timeout_s=1.0))
        except TimeoutError:
            self.number += 1
        else:
            self.number += 2
            self._send_copy(following)
            await asyncio.sleep(self.provider.latency_s * 3)
        await self._until_confirmed(notification)

    def _send_copy(self, notification: Notification) -> None:
        """Send it without waiting for the answer."""
        task = asyncio.create_task(self._once(notification))
        self._copies.add(task)
        task.add_done_callback(self._copies.discard)

    async def _until_confirmed(self, notification: Notification) -> None:
        while not self.over:
            answer = await self._once(notification)
            if answer is Answer.CONFIRMED:
                return
            if answer is Answer.GONE:
                self.end()
            if answer is Answer.FAULT and self.queue and self.provider.renews:
                # After a fault other content may come under the number: this and the next, as one.
                following, content = self.queue.popleft(), notification.content
                both = {one.key: one for one in (*content.statements, *following.statements)}
                merged = following._replace(statements=tuple(both.values()))
                notification = Notification(notification.number, merged)
            await asyncio.sleep(self.provider.latency_s)

    async def _once(self, notification: Notification) -> Answer | None:
        await self.provider.travel()
        answer = None
        if not self.over:
            answer = await self.deliver(notification)
            self.provider.answered(self, notification, answer)
        await self.provider.travel()
        return answer


class Provider:
    """What is true, who is subscribed, and what goes wrong."""

    def __init__(self, rng: random.Random | None = None, *, latency_s: float = 0.001) -> None:
        self.rng = rng or random.Random(0)
        self.latency_s = latency_s
        self.incarnation = 1
        self.version = 0
        self.entities: dict[str, tuple[str, int]] = {}
        """Value and version by key."""
        self.sessions: list[Session] = []
        self.opened = 0
        """How many sessions there were."""
        self.snapshots = 0
        self.snapshot_fails = 0
        """How many of the next snapshots fail."""
        self.snapshot_takes_s = 0.0
        self.renews = False
        """Whether the content is renewed after a fault."""
        self.faults: dict[Fault, float] = {}
        """Chance of each fault, by message."""
        self.script: list[dict[int, Fault]] = []
        """Faults of the sessions to come, by the how-manieth message."""
        self.injected: Callable[[Fault, Session], None] = lambda _fault, _session: None
        self.answered: Callable[[Session, Notification, Answer], None] = lambda *_: None

    def change(self, *keys: str, value: str = "") -> Content:
        """State these entities anew, as one state of the provider."""
        version = self.version + 1
        return self._state([Statement(key, value or f"v{version}", version) for key in keys])

    def delete(self, *keys: str) -> Content:
        return self._state([Statement(key, None, self.version + 1) for key in keys])

    def _state(self, statements: list[Statement]) -> Content:
        self.version += 1
        for key, value, _ in statements:
            if value is None:
                self.entities.pop(key, None)
            else:
                self.entities[key] = (value, self.version)
        content = Content(self.incarnation, self.version, tuple(statements))
        for session in self.sessions:
            session.put(content)
        return content

    def restart(self) -> None:
        """Sessions and version counter are lost, entities are not."""
        self.incarnation += 1
        self.version = 1
        self.entities = {key: (value, 1) for key, (value, _) in self.entities.items()}
        for session in list(self.sessions):
            session.end()

    def subscribe(self, deliver: Deliver, ended: Callable[[], None]) -> Session:
        script = self.script.pop(0) if self.script else {}
        self.opened += 1
        session = Session(self, deliver, ended, self.opened, script=script)
        self.sessions.append(session)
        return session

    def leave(self, session: Session) -> None:
        if session in self.sessions:
            self.sessions.remove(session)

    async def snapshot(self) -> Content:
        """Current state as of one moment."""
        self.snapshots += 1
        await self.travel()
        await asyncio.sleep(self.snapshot_takes_s / 2)
        found = [Statement(key, *stated) for key, stated in self.entities.items()]
        content = Content(self.incarnation, self.version, tuple(found))
        await asyncio.sleep(self.snapshot_takes_s / 2)
        await self.travel()
        if self.snapshot_fails:
            self.snapshot_fails -= 1
            raise ConnectionError("the snapshot was cut off")
        return content

    async def travel(self) -> None:
        await asyncio.sleep(self.latency_s * self.rng.uniform(0.5, 1.5))

    def draw(self, session: Session) -> Fault | None:
        """What happens to the next message of a session, by chance.

        Numbers that go back hide a message that was lost before: then no consumer can see either,
        so a session has only one of the two.
        """
        for fault, chance in self.faults.items():
            if self.rng.random() < chance:
                if fault is Fault.DROP and session.rewound:
                    return None
                if fault in REWINDS and session.dropped:
                    return None
                session.dropped = session.dropped or fault is Fault.DROP
                session.rewound = session.rewound or fault in REWINDS
                return fault
        return None


def body(incarnation: int, version: int, value: str) -> bytes:
    """An entity as it is stored."""
    return json.dumps({"incarnation": incarnation, "version": version, "value": value}).encode()


class NumberedSource(Source):
    """What an adapter of the protocol would be. Implements `instep.ports.Source`."""

    def __init__(
        self,
        provider: Provider,
        settings: SequencedFeedSettings | None = None,
        *,
        clock: Callable[[], float],
        page_records: int = 3,
    ) -> None:
        self.provider = provider
        self.settings = settings
        self.clock = clock
        self.page_records = page_records
        self.feeds: list[SequencedFeed] = []
        self.starts: list[str | Start] = []
        self.refused = 0
        """How many of the next subscriptions are refused."""

    async def discover(self) -> Sequence[StreamInfo]:
        return [
            StreamInfo(
                id=STREAM,
                origin="the provider",
                kind="numbered",
                mode=Mode.BASELINE,
                classes=("NODE",),
                readable=frozenset({"NODE"}),
                absence_stated=frozenset({"NODE"}),
                resumable=False,
            )
        ]

    @asynccontextmanager
    async def feed(self, stream: StreamInfo, start: str | Start) -> AsyncIterator[SequencedFeed]:
        assert stream.id == STREAM
        self.starts.append(start)
        await self.provider.travel()
        if self.refused:
            self.refused -= 1
            raise UnreachableError("no subscription")
        feed = SequencedFeed(f"session-{self.provider.opened + 1}", self.settings, clock=self.clock)
        self.feeds.append(feed)

        async def deliver(notification: Notification) -> Answer:
            receipt = await feed.accept(message(feed, notification))
            if receipt.outcome is not ReceiptOutcome.REFUSED:
                return Answer.CONFIRMED
            return Answer.GONE if receipt.refusal == "closed" else Answer.FAULT

        def ended() -> None:
            feed.fail(UnreachableError("the subscription has ended"))

        session = self.provider.subscribe(deliver, ended)
        try:
            yield feed
        finally:
            self.feeds.remove(feed)
            feed.close()
            session.stop()
            with suppress(asyncio.CancelledError):
                await asyncio.gather(session.task, return_exceptions=True)

    async def baseline(self, stream: StreamInfo, opened_at_us: int) -> AsyncIterator[list[Record]]:
        assert stream.id == STREAM
        assert opened_at_us
        if self.settings is not None and self.settings.confirm_while_baselining:
            yield []
        try:
            content = await self.provider.snapshot()
        except ConnectionError as error:
            raise BaselineError(str(error), retriable=True) from error
        at_us = min((feed.opened_at_us for feed in self.feeds), default=opened_at_us)
        rows = [
            Record(
                stream=STREAM,
                key=key,
                kind=RecordType.CREATE_UPDATE,
                token="",
                appended_at_us=at_us,
                entity_class="NODE",
                body=body(content.incarnation, version, value or ""),
                uuid=key,
            )
            for key, value, version in content.statements
        ]
        for start in range(0, len(rows), self.page_records):
            yield rows[start : start + self.page_records]
        for feed in self.feeds:
            feed.baseline_version(content.version)

    async def state(self, stream: StreamInfo) -> StreamState:
        assert stream.id == STREAM
        return StreamState.ACTIVE

    async def close(self) -> None:
        pass


def message(feed: SequencedFeed, notification: Notification) -> NumberedRecords:
    """A notification as the adapter gives it to its feed."""
    number, content = notification
    raw = json.dumps(content).encode()
    at_us = feed.stamp_us()
    return NumberedRecords(
        number=number,
        digest=blake2b(raw, digest_size=16).digest(),
        size_bytes=len(raw),
        version=content.version,
        records=[
            Record(
                stream=STREAM,
                key=key,
                kind=RecordType.CREATE_UPDATE if value is not None else RecordType.DELETE,
                token=f"{feed.session}/{number}",
                appended_at_us=at_us,
                partition=feed.session,
                offset=number,
                entity_class="NODE",
                body=b"" if value is None else body(content.incarnation, version, value),
                ends=value is None,
                uuid=key,
            )
            for key, value, version in content.statements
        ],
    )

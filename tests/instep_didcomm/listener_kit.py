"""What the tests share: messages, an intake in memory over the real sequencer, a listener."""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import aiohttp
import msgspec

from instep.errors import InstepError
from instep.model.messages import Message, MessageHeader
from instep.ports.listener import Receipt, ReceiptOutcome
from instep.ports.message_store import OutboxStore
from instep.runtime.retry import Environment
from instep.sequencing.claims import Claims
from instep.sequencing.effects import SequenceEffect
from instep.sequencing.events import Fill
from instep.sequencing.outbox import OutboxState
from instep.sequencing.sequencer import Sequencer
from instep.sequencing.settings import SequencerSettings
from instep.sequencing.transitions import Refusal
from instep_didcomm import DidcommListener, read_options

BID = "https://didcomm.org/auction/1.0/bid"
AUCTION = {"type": "https://didcomm.org/auction/1.0/*", "sequenced": True}
PLAIN = "application/didcomm-plain+json"
UPGRADE = (
    b"GET /didcomm HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
    b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
)


def plain(order: int | None = 1, **headers: object) -> dict[str, Any]:
    """A bid; a header that is None is left out."""
    message = {
        "id": f"bid-{order}",
        "type": BID,
        "from": "did:ex:alice",
        "thid": "lot-7",
        "sender_order": order,
        "body": {"amount": 100 * (order or 0)},
    }
    return {name: value for name, value in {**message, **headers}.items() if value is not None}


class MemoryOutboxes(OutboxStore):
    """Keeps outboxes as a store would, through their encoded form."""

    def __init__(self) -> None:
        self.states: dict[str, bytes] = {}
        self.kept: dict[tuple[str, int], bytes] = {}
        self.fails = 0

    async def outboxes(self) -> Sequence[str]:
        return [scope for scope in self.states if (await self._state(scope)).sent]

    async def load_outbox(self, scope: str) -> OutboxState | None:
        return await self._state(scope) if scope in self.states else None

    async def save_outbox(
        self,
        scope: str,
        state: OutboxState,
        before: OutboxState,  # noqa: ARG002 - all is written
        bodies: Mapping[int, bytes] | None = None,
    ) -> None:
        await asyncio.sleep(0)
        if self.fails:
            self.fails -= 1
            raise OSError("the disk is full")
        self.states[scope] = msgspec.json.encode(state)
        self.kept |= {(scope, number): body for number, body in (bodies or {}).items()}
        unacknowledged = {sent.number for sent in state.sent}
        for of, number in list(self.kept):
            if of == scope and number not in unacknowledged:
                del self.kept[of, number]

    async def outbox_bodies(self, scope: str, numbers: Sequence[int]) -> Mapping[int, bytes]:
        return {n: self.kept[scope, n] for n in numbers if (scope, n) in self.kept}

    async def _state(self, scope: str) -> OutboxState:
        return msgspec.json.decode(self.states[scope], type=OutboxState)


class MemoryIntake:
    """An intake whose commits are in memory; the decisions are the real sequencer's."""

    def __init__(self, settings: SequencerSettings | None = None) -> None:
        self.outbox = MemoryOutboxes()
        self.settings = settings or SequencerSettings()
        self.sequencers: dict[str, Sequencer] = {}
        self.held: dict[tuple[str, int], Message] = {}
        self.delivered: list[Message] = []
        self.receipts: Counter[str] = Counter()
        self.deviations: Counter[str] = Counter()
        self.effects: list[tuple[str, SequenceEffect]] = []
        self.seen: set[tuple[str, str]] = set()
        self.full = False
        self.tasks: set[asyncio.Task[None]] = set()

    def _sequencer(self, scope: str) -> Sequencer:
        return self.sequencers.setdefault(scope, Sequencer(self.settings))

    async def receive(self, message: Message, settings: SequencerSettings | None = None) -> Receipt:
        if settings is not None:
            self.sequencers.setdefault(message.scope, Sequencer(settings))
        receipt = self._receive(message)
        self.receipts[receipt.outcome.value] += 1
        return receipt

    def _receive(self, message: Message) -> Receipt:
        if self.full:
            return Receipt(ReceiptOutcome.REFUSED, refusal=Refusal.FULL)
        if message.number < 0:
            if (message.scope, message.id) in self.seen:
                return Receipt(ReceiptOutcome.DUPLICATE)
            self.seen.add((message.scope, message.id))
            self.delivered.append(message)
            return Receipt(ReceiptOutcome.ACCEPTED)
        sequencer = self._sequencer(message.scope)
        numbered = MessageHeader(
            message.number, message.digest, len(message.body), message.expires_at_us
        )
        outcome = sequencer.receive([numbered], message.received_at_us)
        sequencer.committed(sequencer.checkpoint())
        self.effects += [(message.scope, effect) for effect in outcome.effects]
        if outcome.accepted:
            self.held[message.scope, message.number] = message
        self.delivered += [self.held.pop((message.scope, number)) for number in outcome.deliver]
        if outcome.refused:
            return Receipt(ReceiptOutcome.REFUSED, refusal=outcome.refused[0][1])
        if outcome.duplicates:
            return Receipt(ReceiptOutcome.DUPLICATE, deviation=bool(outcome.deviations))
        return Receipt(ReceiptOutcome.ACCEPTED)

    async def count(self, scope: str, number: int) -> None:
        sequencer = self._sequencer(scope)
        outcome = sequencer.apply([Fill([(number, number)])], 0)
        sequencer.committed(sequencer.checkpoint())
        self.delivered += [self.held.pop((scope, n)) for n in outcome.deliver]

    async def scopes(self, prefix: str, limit: int) -> list[str]:
        return [scope for scope in self.sequencers if scope.startswith(prefix)][:limit]

    def submit(
        self,
        message: Message,
        answer: Callable[[Receipt | InstepError], None],
        settings: SequencerSettings | None = None,
    ) -> None:
        async def received() -> None:
            answer(await self.receive(message, settings))

        task = asyncio.ensure_future(received())
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)

    async def claims(self, scope: str) -> Claims | None:
        sequencer = self.sequencers.get(scope)
        return sequencer.claims() if sequencer else None

    def report_deviation(self, kind: str) -> None:
        self.deviations[kind] += 1

    def show_refusals(self, counts: Mapping[str, int]) -> None:
        pass

    def numbers(self, scope: str) -> list[int]:
        return [message.number for message in self.delivered if message.scope == scope]

    def __getattr__(self, name: str) -> Any:
        raise AssertionError(f"a DIDComm listener does not ask for {name}")


@contextlib.asynccontextmanager
async def serving(
    intake: MemoryIntake | None = None, now: Callable[[], float] = time.time, **options: Any
) -> AsyncIterator[tuple[DidcommListener, MemoryIntake]]:
    """A listener on a free port."""
    table = {"listen": "http://127.0.0.1:0/didcomm", "protocols": [AUCTION], **options}
    environment = Environment(now=now, rng=random.Random(1))
    listener = DidcommListener(read_options(table, "test"), "test", environment)
    intake = intake or MemoryIntake()
    task = asyncio.create_task(listener.serve(intake))
    try:
        async with asyncio.timeout(10):
            while not listener.address:
                if task.done():
                    task.result()
                await asyncio.sleep(0.005)
        yield listener, intake
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
        await listener.close()


async def post(
    url: str, message: Mapping[str, Any] | bytes, content_type: str = PLAIN, **headers: str
) -> tuple[int, dict[str, Any], Mapping[str, str]]:
    """Status, problem and headers that a message is answered with."""
    body = message if isinstance(message, bytes) else json.dumps(message).encode()
    sent = {"Content-Type": content_type, **headers}
    async with (
        aiohttp.ClientSession() as session,
        session.post(url, data=body, headers=sent, allow_redirects=False) as response,
    ):
        text = await response.read()
        return response.status, json.loads(text) if text else {}, dict(response.headers)


async def until(condition: Callable[[], bool], timeout_s: float = 20) -> None:
    async with asyncio.timeout(timeout_s):
        while not condition():
            await asyncio.sleep(0.01)


def keys_file(folder: Path, name: str, keys: bytes) -> str:
    path = folder / f"{name}.json"
    path.write_bytes(keys)
    return str(path)


async def closed(reader: asyncio.StreamReader) -> bytes:
    try:
        return await asyncio.wait_for(reader.read(), 10)
    except ConnectionResetError:
        return b""

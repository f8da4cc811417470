"""A receiver of a listener that tests speak through, over the real store."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from instep import (
    ConsumerSettings,
    Handler,
    IntakeSettings,
    Message,
    Receiver,
    SequencerSettings,
    StoredMessage,
)
from instep.ports import Intake, Receipt, ReceiptOutcome
from instep.sequencing import Claims, SequenceEffect
from instep_sql import SqlStore

SCOPE = "thread bob"


class Speaker:
    """A listener without a wire: what it is given to serve is spoken to directly."""

    kind = "spoken"

    def __init__(self, settings: SequencerSettings | None = None) -> None:
        self.settings = settings or SequencerSettings()
        self.address = ""
        self.intake: Intake | None = None
        self.effects: list[tuple[str, SequenceEffect]] = []
        self.fails: Exception | None = None
        self.opens_implicitly = True

    def settings_of(self, scope: str) -> SequencerSettings:  # noqa: ARG002 - one for all
        return self.settings

    def peer_of(self, scope: str) -> str:
        return scope.rpartition(" ")[2]

    async def serve(self, intake: Intake) -> None:
        self.intake = intake
        self.address = "spoken://here"
        try:
            await asyncio.Event().wait()
        finally:
            self.address = ""

    async def carry_out(self, scope: str, effect: SequenceEffect) -> None:
        self.effects.append((scope, effect))
        if self.fails is not None:
            raise self.fails

    async def close(self) -> None:
        pass


def message(number: int, scope: str = SCOPE, **changes: Any) -> Message:
    given: dict[str, Any] = {
        "id": f"{scope}#{number}",
        "body": b'{"number": %d}' % number,
        "received_at_us": time.time_ns() // 1_000,
        **changes,
    }
    return Message(scope=scope, number=number, **given)


class Spoken:
    """A running receiver, and the ways to look at what it did."""

    def __init__(self, receiver: Receiver, speaker: Speaker, store: SqlStore) -> None:
        self.receiver, self.speaker, self.store = receiver, speaker, store

    @property
    def intake(self) -> Intake:
        assert self.speaker.intake is not None
        return self.speaker.intake

    async def say(self, *numbers: int, scope: str = SCOPE, **changes: Any) -> list[Receipt]:
        return [await self.intake.receive(message(n, scope, **changes)) for n in numbers]

    async def delivered(self, scope: str | None = SCOPE) -> list[StoredMessage]:
        return [one async for one in self.store.reader.messages(stream=scope)]

    async def numbers(self, scope: str | None = SCOPE) -> list[int]:
        return [one.number for one in await self.delivered(scope)]

    async def rows(self, query: str) -> list[tuple[Any, ...]]:
        return await self.store._database.run(
            lambda connection: [tuple(row) for row in connection.exec_driver_sql(query)]
        )


async def claims(intake: Intake, scope: str = SCOPE) -> Claims:
    """What is claimed of a sequence that is known."""
    found = await intake.claims(scope)
    assert found is not None
    return found


async def receive_together(intake: Intake, messages: list[Message]) -> list[Receipt]:
    """Messages that arrive at once: one commit makes them durable."""
    return await asyncio.gather(*map(intake.receive, messages))


async def until(done: Any, timeout_s: float = 10.0) -> Any:
    """Poll an async question until its answer is true."""
    async with asyncio.timeout(timeout_s):
        while not (found := await done()):
            await asyncio.sleep(0.01)
        return found


def quick(**changes: Any) -> ConsumerSettings:
    given: dict[str, Any] = {
        "poll_s": 0.05,
        "handler_retry_initial_s": 0.01,
        "handler_retry_max_s": 0.02,
        "handler_attempts": 3,
        **changes,
    }
    return ConsumerSettings(
        reconnect_initial_s=0.01, reconnect_max_s=0.05, intake=IntakeSettings(**given)
    )


@asynccontextmanager
async def spoken(
    url: str = "sqlite://",
    *,
    handler: Handler | None = None,
    sequence: SequencerSettings | None = None,
    store: SqlStore | None = None,
    **changes: Any,
) -> AsyncIterator[Spoken]:
    speaker, kept = Speaker(sequence), store or SqlStore(url)
    async with Receiver("east", speaker, kept, quick(**changes), handler=handler) as receiver:
        await receiver.aligned(10)
        yield Spoken(receiver, speaker, kept)


def outcomes(receipts: list[Receipt]) -> list[str]:
    return [
        receipt.refusal.value if receipt.refusal else receipt.outcome.value for receipt in receipts
    ]


ACCEPTED = ReceiptOutcome.ACCEPTED.value
DUPLICATE = ReceiptOutcome.DUPLICATE.value

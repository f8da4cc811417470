"""What is owed to a peer is durable with its decision, until it was sent."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest

from instep import SequencerSettings, SourceError, StoreUnavailableError
from instep.sequencing import (
    AskResend,
    GapPolicy,
    LastResort,
    Refusal,
    ReportFault,
    SequenceEffect,
    SequenceEnded,
    SequenceFailed,
    SequencePhase,
)
from instep.sequencing.transitions import SequenceEvent
from tests.instep.runtime.messages.intake_kit import (
    SCOPE,
    Spoken,
    claims,
    message,
    spoken,
    until,
)

pytestmark = pytest.mark.asyncio

OWED = "SELECT scope, peer FROM instep_obligation ORDER BY number"
PATIENT = SequencerSettings(gap_deadline_s=60)


async def owed(at: Spoken) -> list[tuple[str, str]]:
    return [(scope, peer) for scope, peer in await at.rows(OWED)]


async def expire(at: Spoken, *numbers: int, scope: str = SCOPE) -> None:
    """A message comes in time, and expires behind a gap."""
    soon_us = time.time_ns() // 1_000 + 20_000
    await at.say(*numbers, scope=scope, expires_at_us=soon_us)

    async def faulted() -> bool:
        return bool((await claims(at.intake, scope)).faulted())

    await until(faulted)


async def test_a_fault_is_owed_until_it_was_sent_whatever_becomes_of_us(database: str) -> None:
    async with spoken(database, sequence=PATIENT, effects_retry_initial_s=60) as at:
        at.speaker.fails = SourceError("the peer is away")
        await expire(at, 3)
        await until(lambda: asyncio.sleep(0, at.speaker.effects))
        assert await owed(at) == [(SCOPE, "bob")]
    async with spoken(database, sequence=PATIENT) as at:
        # After a restart, and though nothing comes.
        await until(lambda: asyncio.sleep(0, at.speaker.effects))
        assert at.speaker.effects == [(SCOPE, ReportFault([(3, 3)], Refusal.EXPIRED))]

        async def settled() -> bool:
            return not await owed(at)

        await until(settled)
    async with spoken(database, sequence=PATIENT) as at:
        await at.say(1)
        assert at.speaker.effects == []


async def test_what_is_owed_is_there_with_the_commit_that_decided_it(database: str) -> None:
    async with spoken(database, sequence=PATIENT) as at:
        sent: list[list[tuple[str, str]]] = []

        async def carry_out(_scope: str, effect: SequenceEffect) -> None:
            if isinstance(effect, (ReportFault, SequenceFailed)):
                sent.append(await owed(at))

        at.speaker.carry_out = carry_out  # type: ignore[method-assign, assignment]
        await expire(at, 3)
        await until(lambda: asyncio.sleep(0, sent))
        assert sent == [[(SCOPE, "bob")]]


async def test_the_end_and_the_failure_of_a_sequence_are_owed(database: str) -> None:
    failing = SequencerSettings(
        gap_deadline_s=0.02, gap_policy=GapPolicy.WAIT, gap_repeat_s=0.02, gap_attempts=1
    )
    async with spoken(database, sequence=failing, effects_retry_initial_s=60) as at:
        at.speaker.fails = SourceError("the peer is away")
        await at.say(2)
        soon_us = time.time_ns() // 1_000 + 1_000_000
        await at.intake.open("1 eve", SequencerSettings(), b"", soon_us)

        async def both() -> bool:
            return len(await owed(at)) == 2

        await until(both)
    async with spoken(database, sequence=failing) as at:

        async def told() -> bool:
            return len(at.speaker.effects) == 2

        await until(told)
        by_scope = {(scope, type(effect)): effect for scope, effect in at.speaker.effects}
        assert isinstance(by_scope[SCOPE, SequenceFailed], SequenceFailed)
        assert by_scope["1 eve", SequenceEnded] == SequenceEnded(SequenceEvent.EXPIRED)


async def test_no_gap_is_held_against_a_sender_that_we_could_not_ask(database: str) -> None:
    settings = SequencerSettings(
        gap_deadline_s=0.01, gap_repeat_s=0.05, gap_attempts=1, gap_last_resort=LastResort.FAIL
    )
    async with spoken(database, sequence=settings, effects_at_once=1) as at:
        go, begun = asyncio.Event(), asyncio.Event()

        async def carry_out(scope: str, effect: SequenceEffect) -> None:
            if scope == "1 eve":
                begun.set()
                await go.wait()
            at.speaker.effects.append((scope, effect))

        at.speaker.carry_out = carry_out  # type: ignore[method-assign]
        await at.say(2, scope="1 eve")
        await begun.wait()
        await at.say(2)
        # Many times the time in which an answer would have been due.
        for _ in range(20):
            await asyncio.sleep(0.02)
            await at.say(1, scope="1 ann")
        assert (await claims(at.intake)).state.phase is SequencePhase.OPEN
        assert at.speaker.effects == []
        go.set()

        async def failed() -> bool:
            return (await claims(at.intake)).state.phase is SequencePhase.FAILED

        await until(failed)
        assert (SCOPE, AskResend([(1, 1)])) in at.speaker.effects


async def test_obligations_of_a_commit_whose_answer_was_lost_are_carried_out(
    database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with spoken(database, sequence=PATIENT) as at:
        await at.say(1)
        database_ = at.store._database
        run: Any = database_.run
        lost: list[bool] = []

        async def loses(*args: Any, **kwargs: Any) -> Any:
            result = await run(*args, **kwargs)
            if not lost and await run(
                lambda connection: connection.exec_driver_sql(OWED).first() is not None
            ):
                lost.append(True)
                raise StoreUnavailableError("the answer is lost")
            return result

        monkeypatch.setattr(database_, "run", loses)
        soon_us = message(1).received_at_us + 30_000
        await at.say(4, expires_at_us=soon_us)
        await until(lambda: asyncio.sleep(0, at.speaker.effects))
        assert lost
        assert at.speaker.effects[0] == (SCOPE, ReportFault([(4, 4)], Refusal.EXPIRED))

"""What an operator does about a sequence that is stuck, while the receiver runs."""

from __future__ import annotations

import pytest

from instep import SequencerSettings
from instep.sequencing import GapPolicy, SequencePhase
from instep.sequencing.operator_actions import OperatorAction
from tests.instep.runtime.messages.intake_kit import (
    ACCEPTED,
    SCOPE,
    Spoken,
    outcomes,
    spoken,
    until,
)

pytestmark = pytest.mark.asyncio

WAITING = SequencerSettings(gap_policy=GapPolicy.WAIT, gap_deadline_s=1_000)
FAILING = SequencerSettings(gap_policy=GapPolicy.FAIL, gap_deadline_s=0, gap_repeat_s=0.01)


async def ask(at: Spoken, action: OperatorAction, number: int | None = None) -> None:
    assert await at.store.reader.request_action("east", SCOPE, action, number)

    async def done() -> bool:
        return not await at.rows("SELECT id FROM instep_sequence_request WHERE outcome IS NULL")

    await until(done)


async def failed(at: Spoken) -> bool:
    state = await at.intake.state(SCOPE)
    return state is not None and state.phase is SequencePhase.FAILED


async def test_a_gap_is_given_up(database: str) -> None:
    async with spoken(database, sequence=WAITING) as at:
        await at.say(1, 3, 5)
        await ask(at, OperatorAction.GIVE_UP, 2)
        assert await at.numbers() == [1, 3]
        await ask(at, OperatorAction.GIVE_UP)
        assert await at.numbers() == [1, 3, 5]
        assert outcomes(await at.say(4, 6)) == ["given-up", ACCEPTED]


async def test_a_failed_sequence_goes_on_at_a_number(database: str) -> None:
    async with spoken(database, sequence=FAILING) as at:
        await at.say(1, 3)

        await until(lambda: failed(at))
        await ask(at, OperatorAction.RESET, 4)
        assert outcomes(await at.say(4, 5)) == [ACCEPTED] * 2
        assert await at.numbers() == [1, 4, 5]
        await ask(at, OperatorAction.RESET)
        assert outcomes(await at.say(1)) == [ACCEPTED]


async def test_a_sequence_is_closed_and_a_request_that_is_not_possible_is_told(
    database: str,
) -> None:
    async with spoken(database, sequence=WAITING) as at:
        await at.say(1)
        events: list[str] = []
        at.receiver._listeners.append(events)  # type: ignore[arg-type]
        await ask(at, OperatorAction.CLOSE)
        assert outcomes(await at.say(2)) == ["closed"]
        state = await at.intake.state(SCOPE)
        assert state is not None
        assert state.phase is SequencePhase.CLOSED
        await ask(at, OperatorAction.GIVE_UP, 9)
        told = [event.text for event in events if event.kind == "operator"]  # type: ignore[attr-defined]
        assert told == [
            "close: the next number is 2, closed",
            "give-up: refused: it is closed, and nothing waits in it: `reset` begins anew",
        ]
        assert not await at.store.reader.request_action("east", "t", OperatorAction.CLOSE)
        assert not await at.store.reader.request_action("west", SCOPE, OperatorAction.CLOSE)

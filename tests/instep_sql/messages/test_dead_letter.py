"""The dead letter and the record of numbers, in the store of a receiver that runs, and after it."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import msgspec
import pytest

from instep import Message, SequencerSettings
from instep.errors import SourceError
from instep.ports.message_store import HandlerConnection
from instep.ports.reader import DeadMessage
from instep.sequencing import (
    Cancel,
    Close,
    FaultPolicy,
    Fill,
    GapPolicy,
    IncompleteBehavior,
    LastResort,
    SequencePhase,
)
from instep.sequencing.operator_actions import OperatorAction
from instep_sql import SqlStore
from tests.instep.runtime.messages.intake_kit import (
    ACCEPTED,
    DUPLICATE,
    SCOPE,
    Spoken,
    message,
    outcomes,
    receive_together,
    spoken,
    until,
)

pytestmark = pytest.mark.asyncio

PATIENT = SequencerSettings(gap_policy=GapPolicy.WAIT, gap_deadline_s=1_000)
FAILING = SequencerSettings(gap_policy=GapPolicy.FAIL, gap_deadline_s=1)


async def dead(at: Spoken) -> list[DeadMessage]:
    return [one async for one in at.store.reader.dead_messages()]


async def record(at: Spoken, scope: str = SCOPE) -> list[tuple[int, int, str]]:
    return [(n.low, n.high, n.end.value) for n in await at.store.reader.numbers("east", scope)]


async def lasting(at: Spoken) -> int:
    """How many are dead and not to be discarded."""
    return sum(not one.discarded for one in await dead(at))


async def expire(at: Spoken, *numbers: int, scope: str = SCOPE) -> None:
    """Accept these messages, and wait until they have expired behind a gap."""
    before = await lasting(at)
    soon_us = time.time_ns() // 1_000 + 300_000
    said = [message(n, scope, expires_at_us=soon_us) for n in numbers]
    assert outcomes(await receive_together(at.intake, said)) == [ACCEPTED] * len(numbers)

    async def all_dead() -> bool:
        return await lasting(at) == before + len(numbers)

    await until(all_dead)


async def ask(at: Spoken, action: OperatorAction, number: int | None = None) -> str:
    id = await at.store.reader.request_action("east", SCOPE, action, number)
    assert id
    done: str = await until(lambda: at.store.reader.action_outcome(id))
    return done


async def fails(at: Spoken) -> None:
    async def failed() -> bool:
        state = await at.intake.state(SCOPE)
        return state is not None and state.phase is SequencePhase.FAILED

    await until(failed)


async def test_s13_what_was_accepted_is_kept_with_its_body(database: str) -> None:
    async with spoken(database, sequence=PATIENT) as at:
        await at.say(1)
        await expire(at, 3, 4)
    async with spoken(database, sequence=PATIENT) as at:
        assert [(one.number, one.body, one.end, one.by) for one in await dead(at)] == [
            (3, b'{"number": 3}', "expired", "receiver"),
            (4, b'{"number": 4}', "expired", "receiver"),
        ]
        assert await record(at) == [(1, 1, "delivered"), (3, 4, "expired")]

        async def told() -> bool:
            return [one.told for one in await dead(at)] == ["sent", "sent"]

        await until(told)


async def test_a_sender_that_cannot_be_told_is_recorded_as_not_told(database: str) -> None:
    async with spoken(database, sequence=PATIENT, effects_attempts=1) as at:
        at.speaker.fails = SourceError("the peer is away")
        await expire(at, 3)

        async def told() -> bool:
            return [one.told for one in await dead(at)] == ["not-sent"]

        await until(told)


@pytest.mark.parametrize("handled", [True, False])
async def test_a_message_is_replayed_once(database: str, handled: bool) -> None:
    taken: list[int] = []

    async def handle(one: Message, _: HandlerConnection) -> None:
        taken.append(one.number)

    async with spoken(database, sequence=PATIENT, handler=handle if handled else None) as at:
        await at.say(1)
        await expire(at, 3)
        [one] = await dead(at)
        assert "--although-told" in one.why_not_replayed(although_told=False)
        assert not one.why_not_replayed(although_told=True)
        assert await ask(at, OperatorAction.REPLAY, one.id) == "replay: delivered"
        again = await ask(at, OperatorAction.REPLAY, one.id)
        assert again == "replay: refused: it is not in the dead letter any more"

        async def delivered() -> bool:
            return (taken if handled else await at.numbers()) == [1, 3]

        await until(delivered)
        assert await dead(at) == []
        assert await record(at) == [(1, 1, "delivered"), (3, 3, "delivered")]
        rows = await at.rows("SELECT reason, decided_by FROM instep_number_end ORDER BY id")
        assert rows[-1] == (
            "replayed from the dead letter, although its sender was told: expired",
            "operator",
        )


async def test_s13_a_number_is_delivered_once_though_replayed(database: str) -> None:
    waiting = SequencerSettings(
        gap_policy=GapPolicy.WAIT, gap_deadline_s=1_000, fault_policy=FaultPolicy.WAIT
    )
    async with spoken(database, sequence=waiting) as at:
        await at.say(1)
        # Twice, with other content after the fault: both are dead.
        await expire(at, 3)
        await expire(at, 3)
        first, second = await dead(at)
        for one in (first, second):
            await at.store.reader.request_action("east", SCOPE, OperatorAction.REPLAY, one.id)

        async def delivered() -> bool:
            return await at.numbers() == [1, 3]

        await until(delivered)
        again = await ask(at, OperatorAction.REPLAY, second.id)
        assert again == "replay: refused: a message was delivered under its number"
        assert outcomes(await at.say(3)) == [DUPLICATE], "what its sender sends again is a copy"
        assert outcomes(await at.say(2)) == [ACCEPTED]
        assert await at.numbers() == [1, 3, 2]
        assert await record(at) == [(1, 3, "delivered")] or await record(at) == [
            (1, 2, "delivered"),
            (3, 3, "delivered"),
        ]


async def test_what_is_replayed_of_a_forgotten_count_is_in_nobodys_way(database: str) -> None:
    """Its number is in use again while it waits for the handler."""
    quickly = SequencerSettings(
        gap_policy=GapPolicy.FAIL, gap_deadline_s=0.3, keep_ended_s=0.1, keep_copies_s=0
    )
    taken: list[bytes] = []
    open_ = asyncio.Event()

    async def handle(one: Message, _: HandlerConnection) -> None:
        if not open_.is_set():
            raise RuntimeError("not yet")
        taken.append(one.body)

    async with spoken(
        database, sequence=quickly, handler=handle, handler_attempts=1_000, poll_s=0.05
    ) as at:
        await at.say(3)

        async def forgotten() -> bool:
            return await at.intake.claims(SCOPE) is None

        await until(forgotten)
        await at.intake.open(SCOPE, PATIENT)
        [one] = await dead(at)
        assert await ask(at, OperatorAction.REPLAY, one.id) == "replay: delivered"
        assert outcomes(await at.say(3)) == [ACCEPTED]
        open_.set()
        assert outcomes(await at.say(1, 2)) == [ACCEPTED] * 2

        async def all_taken() -> bool:
            return len(taken) == 4

        await until(all_taken)
        assert [msgspec.json.decode(body)["number"] for body in taken] == [3, 1, 2, 3]


async def test_what_was_replayed_makes_room(database: str) -> None:
    limits: dict[str, Any] = {"limit_dead_messages_per_sender": 1}
    async with spoken(database, sequence=PATIENT, **limits) as at:
        await expire(at, 3)
        assert outcomes(await at.say(5)) == ["full"]
        [one] = await dead(at)
        await ask(at, OperatorAction.REPLAY, one.id)
        assert outcomes(await at.say(5)) == [ACCEPTED]


async def test_a_reset_keeps_the_ends_that_the_record_has(database: str) -> None:
    async with spoken(database, sequence=PATIENT) as at:
        await at.intake.apply(SCOPE, [message(1), Fill([(2, 2)]), message(3)])
        assert await ask(at, OperatorAction.RESET)
        assert await record(at) == [(1, 1, "delivered"), (2, 2, "filled"), (3, 3, "delivered")]


async def test_a_message_that_is_old_is_told_once_and_stays(database: str) -> None:
    async with spoken(database, sequence=PATIENT, warn_dead_after_s=0.2, poll_s=0.1) as at:
        events: list[Any] = []
        at.receiver._listeners.append(events)  # type: ignore[arg-type]
        await expire(at, 3)

        async def told() -> bool:
            return any(one.kind == "dead-letter" for one in events)

        await until(told)
        await asyncio.sleep(0.3)
        [text] = [one.text for one in events if one.kind == "dead-letter"]
        assert "is in the dead letter for 0.0 days" in text
        assert len(await dead(at)) == 1


async def test_the_record_of_what_is_forgotten_is_trimmed_and_totals_stay(database: str) -> None:
    quickly = SequencerSettings(
        gap_policy=GapPolicy.FAIL, gap_deadline_s=0.3, keep_ended_s=0.1, keep_copies_s=0
    )
    store = SqlStore(database, numbers_retention_records=2)
    async with spoken(sequence=quickly, store=store) as at:
        for scope in ("1 bob", "2 bob"):
            await at.say(1, 3, scope=scope)

            async def forgotten(scope: str = scope) -> bool:
                return await at.intake.claims(scope) is None

            await until(forgotten)
        assert await record(at, "1 bob") == []
        assert (3, 3, "failed") in await record(at, "2 bob")
        totals = (await at.store.reader.count_sequences()).get("east")
        rows = await at.rows("SELECT ending, numbers FROM instep_number_total ORDER BY ending")
        assert rows == [("delivered", 2), ("failed", 2), ("lost", 2)]
        assert totals is None, "no sequence is known"
        assert [one.number for one in await dead(at)] == [3, 3], "bodies are no part of it"


async def test_s13_the_record_of_a_sequence_that_lives_is_bounded(database: str) -> None:
    store = SqlStore(database, numbers_retention_ranges=3)
    async with spoken(sequence=PATIENT, store=store) as at:
        await expire(at, 2, 300)
        # Each is a range of its own, far ahead of what is missing.
        for number in range(6, 600, 2):
            if number != 300:
                await at.intake.apply(SCOPE, [Cancel([(number, number)])])
        rows = await at.rows("SELECT low, high, ending FROM instep_number_end ORDER BY id")
        assert len(rows) < 50
        assert {(2, 2, "expired"), (300, 300, "expired")} <= set(rows), "of what is dead"
        found = await at.store.reader.numbers("east", SCOPE)
        by_end = {one.end.value for one in found}
        assert by_end == {"cancelled", "expired", "trimmed"}
        told = {n: one.end.value for one in found for n in range(one.low, one.high + 1)}
        assert told[2] == told[300] == "expired"
        assert all(n % 2 == 0 and n >= 2 for n in told), "what is missing has not ended"
        assert told.keys() >= set(range(6, 600, 2))
        [trimmed] = [row for row in rows if row[2] == "trimmed"]
        assert trimmed[0] == 6
        counted = await at.rows("SELECT ending, numbers FROM instep_number_total ORDER BY ending")
        assert counted == [("cancelled", 296), ("expired", 2)]


async def test_s13_what_ended_long_ago_is_told_in_the_totals_alone(database: str) -> None:
    store = SqlStore(database, numbers_retention_s=0.5)
    async with spoken(sequence=PATIENT, store=store) as at:
        await at.say(2)
        await at.intake.apply(SCOPE, [Fill([(1, 1), (3, 3)])])
        await at.say(4)
        assert await record(at) == [
            (1, 1, "filled"),
            (2, 2, "delivered"),
            (3, 3, "filled"),
            (4, 4, "delivered"),
        ]
        await asyncio.sleep(0.6)
        await at.intake.apply(SCOPE, [Fill([(6, 6)])])
        assert await record(at) == [(1, 3, "trimmed"), (4, 4, "delivered"), (6, 6, "filled")]
        counted = await at.rows("SELECT ending, numbers FROM instep_number_total")
        assert counted == [("filled", 3)]


async def test_a_failed_sequence_keeps_what_waits_and_resumes(database: str) -> None:
    async with spoken(database, sequence=FAILING) as at:
        assert outcomes(await at.say(1, 3)) == [ACCEPTED] * 2
        await fails(at)
        [one] = await dead(at)
        assert (one.number, one.frozen, one.reason) == (3, True, "messages 2 did not come in time")
        assert "give-up" in one.why_not_replayed(although_told=True)
        assert await ask(at, OperatorAction.RESUME) == "resume: the next number is 2, open; 1 held"
        assert outcomes(await at.say(2)) == [ACCEPTED]
        assert await at.numbers() == [1, 2, 3]
        assert await dead(at) == []
        refused = await ask(at, OperatorAction.RESUME)
        assert refused == "resume: refused: it is open, it has not failed: `give-up` ends a gap"


async def test_given_up_by_an_operator_a_failed_sequence_delivers(database: str) -> None:
    async with spoken(database, sequence=FAILING) as at:
        await at.say(1, 3, 4)
        await fails(at)
        told = await ask(at, OperatorAction.GIVE_UP)
        assert told == "give-up: the next number is 5, failed; 2 lost"
        assert await at.numbers() == [1, 3, 4]
        assert await record(at) == [(1, 1, "delivered"), (2, 2, "lost"), (3, 4, "delivered")]


async def test_what_a_reset_drops_is_dead(database: str) -> None:
    async with spoken(database, sequence=FAILING) as at:
        await at.say(1, 3)
        await fails(at)
        told = await ask(at, OperatorAction.RESET)
        assert told == "reset: the next number is 1, open; 1 delivered; 2 lost; 3 failed"
        assert [(one.number, one.by) for one in await dead(at)] == [(3, "operator")]


async def test_a_forgotten_sequence_leaves_its_record_and_its_messages(database: str) -> None:
    quickly = SequencerSettings(
        gap_policy=GapPolicy.FAIL, gap_deadline_s=0.5, keep_ended_s=0.5, keep_copies_s=0
    )
    async with spoken(database, sequence=quickly) as at:
        await at.intake.apply(SCOPE, [message(1), Fill([(2, 2)]), Cancel([(3, 3)])])
        await at.say(5)

        async def forgotten() -> bool:
            return await at.intake.claims(SCOPE) is None

        await until(forgotten)
        assert await record(at) == [
            (1, 1, "delivered"),
            (2, 2, "filled"),
            (3, 3, "cancelled"),
            (4, 4, "lost"),
            (5, 5, "failed"),
        ]
        [one] = await dead(at)
        assert (one.stream, one.number, one.frozen) == (SCOPE, 5, False)
        id = await at.store.reader.request_action("east", SCOPE, OperatorAction.REPLAY, one.id)
        assert id
        await until(lambda: at.store.reader.action_outcome(id))
        assert await at.numbers() == [1, 5]
        # The name comes back, and what was before stays apart.
        assert outcomes(await at.say(1)) == [ACCEPTED]
        assert await record(at) == [(1, 1, "delivered")]


async def test_s13_a_full_share_refuses_only_its_sender(database: str) -> None:
    limits: dict[str, Any] = {"limit_dead_messages": 20}
    async with spoken(database, sequence=PATIENT, **limits) as at:
        events: list[str] = []
        at.receiver._listeners.append(events)  # type: ignore[arg-type]
        await expire(at, 3, 4)
        assert outcomes(await at.say(5)) == ["full"], "two of twenty are its share"
        assert outcomes(await at.say(3, scope="other bob")) == ["full"], "in all its sequences"
        assert outcomes(await at.say(1)) == [ACCEPTED], "what cannot die needs no place"
        assert outcomes(await at.say(3, scope="1 eve")) == [ACCEPTED]
        kinds = [event.kind for event in events]  # type: ignore[attr-defined]
        assert kinds.count("dead-letter") == 1
        assert await at.store.reader.drop_dead([one.id for one in await dead(at)]) == 2

        async def room() -> bool:
            return outcomes(await at.say(5)) != ["full"]

        await until(room)
        assert await record(at) == [(1, 1, "delivered"), (3, 4, "expired")]


async def test_what_may_be_discarded_takes_no_place_and_is_trimmed_first(database: str) -> None:
    discarding = SequencerSettings(
        gap_policy=GapPolicy.WAIT, gap_deadline_s=1_000, incomplete=IncompleteBehavior.DISCARD
    )
    limits: dict[str, Any] = {"limit_dead_messages": 3, "limit_dead_messages_per_sender": 3}
    async with spoken(database, sequence=discarding, **limits) as at:
        for scope in ("1 bob", "2 bob"):
            assert outcomes(await at.say(3, 4, scope=scope)) == [ACCEPTED] * 2
            await at.intake.apply(scope, [Close()])
        assert [(one.stream, one.number) for one in await dead(at)] == [
            ("1 bob", 4),
            ("2 bob", 3),
            ("2 bob", 4),
        ]
        assert all(one.discarded for one in await dead(at))
        await expire(at, 3, 4)
        assert sorted(one.discarded for one in await dead(at)) == [False, False, True]


async def test_accepted_and_ended_in_one_commit_it_is_kept(database: str) -> None:
    aborting = SequencerSettings(
        gap_policy=GapPolicy.WAIT, gap_deadline_s=1_000, incomplete=IncompleteBehavior.FAULT
    )
    async with spoken(database, sequence=aborting) as at:
        await at.say(1)
        said = asyncio.create_task(at.intake.receive(message(3)))
        await asyncio.sleep(0)
        await asyncio.gather(said, at.intake.apply(SCOPE, [Close()]))
        [receipt] = [said.result()]
        kept = [one.number for one in await dead(at)]
        assert kept == ([3] if receipt.outcome.value == ACCEPTED else [])


async def test_ranges_of_one_reason_are_one_row(database: str) -> None:
    skipping = SequencerSettings(
        gap_policy=GapPolicy.WAIT, gap_last_resort=LastResort.SKIP, gap_deadline_s=1_000
    )
    async with spoken(database, sequence=skipping) as at:
        for number in range(1, 40):
            await at.intake.apply(
                SCOPE, [Cancel([(number, number)])] if number > 1 else [message(1)]
            )
        assert await at.rows("SELECT low, high FROM instep_number_end") == [(2, 39)]
        totals = (await at.store.reader.count_sequences())["east"].ended
        assert totals == {"cancelled": 38}

"""Sequences that are opened explicitly, envelopes of several events, and the end of a sequence."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest

from instep import SequencerSettings
from instep.errors import StoreUnavailableError
from instep.ports import Intake
from instep.sequencing import (
    Cancel,
    ChangedContentPolicy,
    Close,
    FaultPolicy,
    Last,
    Refusal,
    SequencePhase,
    SequenceRefusedError,
    Terminate,
)
from instep_sql import SqlStore
from tests.instep.runtime.messages.intake_kit import (
    ACCEPTED,
    DUPLICATE,
    SCOPE,
    Spoken,
    claims,
    message,
    outcomes,
    receive_together,
    spoken,
    until,
)

pytestmark = pytest.mark.asyncio


async def refusal(intake: Intake, *events: object, scope: str = SCOPE) -> Refusal:
    with pytest.raises(SequenceRefusedError) as caught:
        await intake.apply(scope, events)  # type: ignore[arg-type]
    return caught.value.refusal


async def known(at: Spoken) -> list[str]:
    rows = await at.rows("SELECT scope FROM instep_sequence WHERE state <> '' ORDER BY id")
    return [scope for (scope,) in rows]


async def test_nobody_makes_a_sequence_by_asking(database: str) -> None:
    async with spoken(database) as at:
        assert await at.intake.state(SCOPE) is None
        assert await at.intake.claims(SCOPE) is None
        assert await at.intake.attributes(SCOPE) is None
        assert await at.intake.missing(SCOPE) == []
        assert await refusal(at.intake, Cancel([(1, 2)])) is Refusal.UNKNOWN
        assert outcomes(await at.say(2**70)) == ["out-of-range"]
        answer = await at.intake.apply(SCOPE, [message(2**70)])
        assert outcomes(answer.receipts) == ["out-of-range"]
        assert not answer.claims.acknowledged()
        assert await at.rows("SELECT scope FROM instep_sequence") == []
        assert outcomes(await at.say(1)) == [ACCEPTED]
        assert await known(at) == [SCOPE]


async def test_what_a_sequence_is_opened_with_is_durable(database: str) -> None:
    late_us = time.time_ns() // 1_000 + 3_600_000_000
    async with spoken(database) as at:
        at.speaker.opens_implicitly = False
        assert outcomes(await at.say(0)) == ["unknown"]
        assert await refusal(at.intake, message(0)) is Refusal.UNKNOWN
        # A message without a number belongs to no sequence.
        assert outcomes(await at.say(-1, scope="other", id="a")) == [ACCEPTED]
        settings = SequencerSettings(first_number=0, limit_messages=3)
        await at.intake.open(SCOPE, settings, b"acks to bob", late_us)
    async with spoken(database) as at:
        at.speaker.opens_implicitly = False
        assert await at.intake.attributes(SCOPE) == b"acks to bob"
        state = await at.intake.state(SCOPE)
        assert state is not None
        assert (state.settings, state.expires_at_us) == (settings, late_us)
        with pytest.raises(SequenceRefusedError) as caught:
            await at.intake.open(SCOPE, settings)
        assert caught.value.refusal is Refusal.EXISTS
        assert outcomes(await at.say(0, 1)) == [ACCEPTED] * 2
        assert await at.numbers() == [0, 1]
        with pytest.raises(SequenceRefusedError) as caught:
            await at.intake.open("late", settings, b"", 1)
        assert caught.value.refusal is Refusal.EXPIRED
        assert await known(at) == ["other", SCOPE]


async def test_of_two_who_open_one_name_together_one_is_refused(database: str) -> None:
    async with spoken(database) as at:
        opening = [at.intake.open(SCOPE, SequencerSettings(), name) for name in (b"a", b"b")]
        first, second = await asyncio.gather(*opening, return_exceptions=True)
        assert first is None
        assert isinstance(second, SequenceRefusedError)
        assert await at.intake.attributes(SCOPE) == b"a"


async def test_an_envelope_is_one_decision_and_is_answered_by_its_commit(database: str) -> None:
    async with spoken(database) as at:
        await at.say(1)
        answer = await at.intake.apply(SCOPE, [message(4), Cancel([(2, 2), (3, 3)]), message(5)])
        assert outcomes(answer.receipts) == [ACCEPTED] * 2
        assert str(answer.claims.acknowledged()) == "1,4-5"
        assert str(answer.claims.cancelled()) == "2-3"
        assert (answer.claims.highest, answer.claims.final) == (5, False)
        assert await at.numbers() == [1, 4, 5]
        # Refused as a whole: neither the message nor the cancel is there.
        assert await refusal(at.intake, message(6), Cancel([(8, 8)]), Last(5)) is (
            Refusal.BEYOND_LAST
        )
        assert str((await claims(at.intake)).cancelled()) == "2-3"
        assert await at.numbers() == [1, 4, 5]
        answer = await at.intake.apply(SCOPE, [message(7), message(5), Close()])
        assert outcomes(answer.receipts) == [ACCEPTED, DUPLICATE]
        assert answer.claims.final
        assert await at.numbers() == [1, 4, 5, 7]
        with pytest.raises(ValueError, match="a message of 'other'"):
            await at.intake.apply(SCOPE, [message(9, "other")])


async def test_missing_numbers_are_those_still_wanted(database: str) -> None:
    async with spoken(database) as at:
        await at.say(1, 3, 7)
        await at.intake.apply(SCOPE, [Cancel([(4, 4)])])
        assert await at.intake.missing(SCOPE) == [(2, 2), (5, 6)]


@pytest.mark.parametrize("retention", [None, 1])
async def test_a_sequence_that_has_ended_is_forgotten(database: str, retention: int | None) -> None:
    settings = SequencerSettings(keep_ended_s=0.2, gap_deadline_s=60)
    store = SqlStore(database, messages_retention_records=retention)
    async with spoken(store=store, sequence=settings) as at:
        await at.say(1, 2, 4, digest=b"old")
        await at.say(-1, id="a")
        await at.say(1, 2, scope="other")
        await at.intake.apply(SCOPE, [Terminate()])
        assert outcomes(await at.say(1)) == ["terminated"]

        async def forgotten() -> bool:
            return await at.intake.state(SCOPE) is None

        await until(forgotten)
        assert await known(at) == ["other"]
        assert [one.stream async for one in at.store.reader.sequences()] == ["other"]
        assert await at.rows("SELECT * FROM instep_inbox") == []
        assert await at.rows("SELECT * FROM instep_seen") == []
        # What was delivered stays readable, under its name, as long as it is kept.
        assert await at.numbers() == ([1, 2, -1, 4] if retention is None else [4])
        # The name is unknown again, and may come back.
        assert outcomes(await at.say(1, digest=b"new")) == [ACCEPTED]
        assert outcomes(await at.say(-1, id="a")) == [ACCEPTED]
        assert str((await claims(at.intake)).acknowledged()) == "1"


async def test_the_name_of_a_forgotten_sequence_goes_with_its_last_message(database: str) -> None:
    async with spoken(database, sequence=SequencerSettings(keep_ended_s=0.05)) as at:
        await at.say(1)
        await at.intake.apply(SCOPE, [Close()])

        async def forgotten() -> bool:
            return await known(at) == []

        await until(forgotten)
        assert await at.numbers() == [1]
        await at.rows("DELETE FROM instep_message RETURNING id")
        store = at.store.messages()
        await store.open("spoken", handled=False)
        assert await store.reclaim([SCOPE], 1) == {SCOPE}
        assert await at.rows("SELECT scope FROM instep_sequence") == []


async def test_a_forgotten_name_stays_while_a_message_of_it_may_be_kept(database: str) -> None:
    """And no longer, whatever others deliver later; an empty sequence leaves no name at all."""
    async with spoken(database, sequence=SequencerSettings(keep_ended_s=0.05)) as at:
        for scope in ("numbered", "again", "without number", "later"):
            number = -1 if scope == "without number" else 1
            await at.say(number, scope=scope)
        await at.intake.open("empty", SequencerSettings(keep_ended_s=0.05))
        names = ["numbered", "again", "without number", "empty"]
        for scope in names:
            await at.intake.apply(scope, [Close()])

        async def forgotten() -> bool:
            return await known(at) == ["later"]

        async def named() -> list[str]:
            return [scope for (scope,) in await at.rows("SELECT scope FROM instep_sequence")]

        await until(forgotten)
        assert sorted(await named()) == ["again", "later", "numbered", "without number"]
        # A name that comes back, and is forgotten without a message, keeps those of its first life.
        await at.intake.open("again", SequencerSettings(keep_ended_s=0.05))
        await at.intake.apply("again", [Close()])
        await until(forgotten)
        await at.say(2, scope="later")
        store = at.store.messages()
        await store.open("spoken", handled=False)
        assert await store.reclaim(names, 1) == set(names)
        assert sorted(await named()) == ["again", "later", "numbered", "without number"]
        shown = [one.stream async for one in at.store.reader.messages()]
        assert shown == ["numbered", "again", "without number", "later", "later"]
        await at.rows("DELETE FROM instep_message WHERE number = 1 OR number = -1 RETURNING id")
        assert await store.reclaim(names, 1) == set(names)
        assert await named() == ["later"]


async def test_a_name_that_comes_back_after_a_lost_answer_has_its_own_row(
    database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is kept under the row that went would be in no sequence: accepted, and never found."""
    ending = SequencerSettings(keep_ended_s=0.05, gap_deadline_s=1_000)
    async with spoken(database, sequence=ending) as at:
        kept: Any = at.intake._store  # type: ignore[attr-defined]
        run, lost = kept._database.run, list[Any]()

        async def answer_lost(work: Any, **given: Any) -> Any:
            result = await run(work, **given)
            if result == {SCOPE} and not lost:
                lost.append(result)
                raise StoreUnavailableError("the answer is lost")
            return result

        monkeypatch.setattr(kept._database, "run", answer_lost)
        await at.intake.open(SCOPE, ending)
        await at.intake.apply(SCOPE, [Close()])

        async def forgotten() -> bool:
            return bool(lost) and await known(at) == []

        await until(forgotten)
        assert await at.say(3)
        of = "FROM instep_inbox AS i JOIN instep_sequence AS q ON q.id = i.sequence_no"
        assert await at.rows(f"SELECT q.scope, i.number {of}") == [(SCOPE, 3)]


async def test_a_sequence_ends_at_its_deadline_though_nothing_comes(database: str) -> None:
    async with spoken(database) as at:
        soon_us = time.time_ns() // 1_000 + 300_000
        await at.intake.open(SCOPE, SequencerSettings(gap_deadline_s=60), b"", soon_us)
        await at.say(1, 3)

        async def ended() -> bool:
            return (await claims(at.intake)).final

        await until(ended)
        assert (await claims(at.intake)).state.phase is SequencePhase.CLOSED
        assert await at.numbers() == [1, 3]
        assert outcomes(await at.say(3, 4)) == [DUPLICATE, "closed"]


async def test_a_sequence_with_a_message_in_quarantine_is_not_forgotten(database: str) -> None:
    async def fails(*_: object) -> None:
        raise RuntimeError("odd")

    settings = SequencerSettings(keep_ended_s=0.05)
    async with spoken(database, handler=fails, handler_attempts=1, sequence=settings) as at:
        await at.say(1)
        await until(lambda: at.rows("SELECT 1 FROM instep_quarantine"))
        await at.intake.apply(SCOPE, [Close()])
        # It was looked at, and is due much later.
        later_us = time.time_ns() // 1_000 + 600_000_000
        await until(lambda: at.rows(f"SELECT 1 FROM instep_sequence WHERE due_us > {later_us}"))
        assert await known(at) == [SCOPE]


async def test_sequences_are_bounded_in_all_and_by_sender(database: str) -> None:
    async with spoken(database, limit_sequences=3, limit_sequences_per_sender=2) as at:
        for scope in ("1 bob", "2 bob"):
            assert outcomes(await at.say(1, scope=scope)) == [ACCEPTED]
        assert outcomes(await at.say(1, scope="3 bob")) == ["full"]
        assert outcomes(await at.say(-1, scope="4 bob")) == ["full"]
        assert outcomes(await at.say(2, scope="2 bob")) == [ACCEPTED]
        assert outcomes(await at.say(1, scope="1 eve")) == [ACCEPTED]
        with pytest.raises(SequenceRefusedError) as caught:
            await at.intake.open("1 ann", SequencerSettings())
        assert caught.value.refusal is Refusal.FULL
    settings = SequencerSettings(keep_ended_s=0.05)
    limits: dict[str, Any] = {"limit_sequences": 3, "limit_sequences_per_sender": 2}
    async with spoken(database, sequence=settings, **limits) as at:
        # The bound holds after a restart, and there is room once one is forgotten.
        assert outcomes(await at.say(1, scope="3 bob")) == ["full"]
        await at.intake.apply("2 bob", [Close()])

        async def room() -> bool:
            return outcomes(await at.say(1, scope="3 bob")) == [ACCEPTED]

        await until(room)
        assert await known(at) == ["1 bob", "1 eve", "3 bob"]


@pytest.mark.parametrize(
    "limits",
    [
        {"limit_buffered_messages": 3},
        {"limit_buffered_messages_per_sender": 3},
        {"limit_buffered_bytes": 3},
        {"limit_buffered_bytes_per_sender": 3},
    ],
)
async def test_what_is_held_is_bounded_over_all_sequences(
    database: str, limits: dict[str, Any]
) -> None:
    settings = SequencerSettings(gap_deadline_s=60)
    async with spoken(database, sequence=settings, **limits) as at:
        assert outcomes(await at.say(2, 3, scope="1 bob", body=b"x")) == [ACCEPTED] * 2
        assert outcomes(await at.say(2, 3, scope="2 bob", body=b"x")) == [ACCEPTED, "full"]
        eve = await at.say(2, scope="1 eve", body=b"x")
        assert outcomes(eve) == [ACCEPTED if "per_sender" in next(iter(limits)) else "full"]
    async with spoken(database, sequence=settings, **limits) as at:
        together = [message(n, "1 bob", body=b"x") for n in (5, 4, 3, 1)]
        assert outcomes(await receive_together(at.intake, together)) == [
            ACCEPTED,
            ACCEPTED,
            DUPLICATE,
            ACCEPTED,
        ]
        # What has its turn needs no room, nothing accepted is lost, and there is room again.
        assert await at.numbers("1 bob") == [1, 2, 3, 4, 5]
        answer = await at.intake.apply("2 bob", [message(n, "2 bob", body=b"x") for n in (3, 4)])
        assert outcomes(answer.receipts) == [ACCEPTED] * 2
        assert outcomes(await at.say(5, scope="2 bob", body=b"x")) == ["full"]
        assert outcomes(await at.say(1, 5, scope="2 bob", body=b"x")) == [ACCEPTED] * 2
        assert await at.numbers("2 bob") == [1, 2, 3, 4, 5]


@pytest.mark.parametrize("policy", list(ChangedContentPolicy))
async def test_copies_are_compared_with_what_the_store_has_kept(
    database: str, policy: ChangedContentPolicy
) -> None:
    settings = SequencerSettings(
        remembered_contents=1, on_changed=policy, fault_policy=FaultPolicy.WAIT
    )
    async with spoken(database, sequence=settings) as at:
        for number in range(1, 5):
            await at.say(number, digest=b"%d" % number)
        (same,) = await at.say(2, digest=b"2")
        assert (outcomes([same]), same.deviation) == ([DUPLICATE], False)
        (other,) = await at.say(2, digest=b"x")
        assert (outcomes([other]), other.deviation) == ([DUPLICATE], True)
        health = at.receiver.health().intake
        assert health is not None
        assert health.deviations == {"content-changed": 1}
        failed = (await claims(at.intake)).state.phase is SequencePhase.FAILED
        assert failed == (policy is ChangedContentPolicy.FAIL)
        assert await at.numbers() == [1, 2, 3, 4]

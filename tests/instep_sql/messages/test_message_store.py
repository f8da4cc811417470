"""The durable inbox on both databases: what is claimed is durable, what is delivered in order."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from instep import FencedError, SequencerSettings
from instep.model.ranges import Ranges
from instep.sequencing import (
    AskResend,
    Cancel,
    Fill,
    GapPolicy,
    Last,
    LastResort,
    Refusal,
    ReportFault,
    Reset,
    SequencePhase,
    SequenceRefusedError,
    Terminate,
)
from instep.sequencing.outbox import Outbox
from instep_sql import SqlStore
from tests.instep.runtime.messages.intake_kit import (
    ACCEPTED,
    DUPLICATE,
    SCOPE,
    claims,
    message,
    outcomes,
    receive_together,
    spoken,
    until,
)

pytestmark = pytest.mark.asyncio


async def test_messages_are_delivered_in_order_and_leave_the_inbox(database: str) -> None:
    async with spoken(database) as at:
        assert outcomes(await at.say(1, 3, 5, 2, 2)) == [ACCEPTED] * 4 + [DUPLICATE]
        assert await at.numbers() == [1, 2, 3]
        assert await at.rows("SELECT number FROM instep_inbox") == [(5,)]
        assert str((await claims(at.intake)).acknowledged()) == "1-3,5"
        state = await at.intake.state(SCOPE)
        assert state is not None
        assert str(state.received) == "1-3,5"
        await at.say(4)
        assert await at.numbers() == [1, 2, 3, 4, 5]
        assert await at.rows("SELECT number FROM instep_inbox") == []
        first = (await at.delivered())[0]
        assert (first.stream, first.id, first.body) == (SCOPE, f"{SCOPE}#1", b'{"number": 1}')
        assert first.delivered_at_us >= first.received_at_us > 0


async def test_messages_that_came_together_are_put_in_order_with_what_was_held(
    database: str,
) -> None:
    async with spoken(database) as at:
        await at.say(2, 4)
        await receive_together(at.intake, [message(n) for n in (5, 3, 1, 6)])
        assert await at.numbers() == [1, 2, 3, 4, 5, 6]


async def test_a_restart_goes_on_where_the_last_commit_left_it(database: str) -> None:
    async with spoken(database) as at:
        await at.say(1, 3, 4)
        await at.intake.apply(SCOPE, [Cancel([(6, 6)])])
    async with spoken(database) as at:
        assert str((await claims(at.intake)).acknowledged()) == "1,3-4"
        assert str((await claims(at.intake)).cancelled()) == "6"
        assert outcomes(await at.say(3, 6, 2)) == [DUPLICATE, "cancelled", ACCEPTED]
        assert await at.numbers() == [1, 2, 3, 4]


async def test_a_hundred_senders_do_not_cost_a_hundred_commits(database: str) -> None:
    async with spoken(database) as at:

        async def sender(name: str) -> None:
            for number in range(1, 11):
                await at.intake.receive(message(number, name))

        await asyncio.gather(*[sender(f"s{n}") for n in range(100)])
        health = at.receiver.health().intake
        assert health is not None
        assert health.accepted == 1_000
        assert health.commits < 100
        for name in ("s0", "s99"):
            assert await at.numbers(name) == list(range(1, 11))


async def test_an_unsequenced_message_passes_once_by_its_id(database: str) -> None:
    async with spoken(database) as at:
        once = [message(-1, id="a"), message(-1, id="b"), message(-1, id="a")]
        receipts = await receive_together(at.intake, once)
        assert outcomes(receipts) == [ACCEPTED, ACCEPTED, DUPLICATE]
        assert outcomes(await at.say(-1, id="a")) == [DUPLICATE]
        assert outcomes(await at.say(-1, scope="other", id="a")) == [ACCEPTED]
    async with spoken(database) as at:
        assert outcomes(await at.say(-1, id="b")) == [DUPLICATE]
        assert [m.id for m in await at.delivered()] == ["a", "b"]


async def test_other_content_under_a_number_is_a_deviation(database: str) -> None:
    async with spoken(database) as at:
        await at.say(1, digest=b"one")
        (receipt,) = await at.say(1, digest=b"two")
        assert receipt.deviation
        health = at.receiver.health().intake
        assert health is not None
        assert health.deviations == {"content-changed": 1}
        rows = await at.rows("SELECT deviations FROM instep_receiver")
        assert rows == [('{"content-changed": 1}',)]


async def test_an_expired_message_is_faulted_and_new_content_counts(database: str) -> None:
    settings = SequencerSettings(gap_deadline_s=60)
    async with spoken(database, sequence=settings) as at:
        soon_us = message(1).received_at_us + 50_000
        await at.say(2, expires_at_us=soon_us)

        async def faulted() -> bool:
            return bool((await claims(at.intake)).faulted())

        await until(faulted)
        dead = "SELECT number, stage, ending, reason FROM instep_inbox"
        assert await at.rows(dead) == [(2, 3, "expired", "expired")]
        await until(lambda: asyncio.sleep(0, at.speaker.effects))
        assert at.speaker.effects == [(SCOPE, ReportFault([(2, 2)], Refusal.EXPIRED))]
        await at.say(2, body=b"new")
        await at.say(1)
        assert [m.body for m in await at.delivered()][1] == b"new"


async def test_a_gap_is_asked_for_after_a_restart_too(database: str) -> None:
    settings = SequencerSettings(
        gap_deadline_s=0.05, gap_repeat_s=0.05, gap_attempts=2, gap_last_resort=LastResort.SKIP
    )
    async with spoken(database, sequence=SequencerSettings(gap_deadline_s=3600)) as at:
        await at.say(1, 4)
    async with spoken(database, sequence=settings) as at:
        # Nothing comes: the store alone knows that there is a gap.
        await at.rows("UPDATE instep_sequence SET due_us = 1 RETURNING id")
        at.intake._due_us = 0  # type: ignore[attr-defined]
        at.intake.report_deviation("woken")
        assert await until(lambda: asyncio.sleep(0, at.speaker.effects))
        assert at.speaker.effects[0] == (SCOPE, AskResend([(2, 3)]))
        await until(lambda: at.rows("SELECT 1 FROM instep_message WHERE number = 4"))
        assert await at.numbers() == [1, 4]


async def test_requests_of_the_peer_are_durable_or_refused(database: str) -> None:
    async with spoken(database) as at:
        await at.say(1, 2)
        await at.intake.apply(SCOPE, [Cancel([(2, 4)])])
        assert str((await claims(at.intake)).cancelled()) == "3-4"
        await at.intake.apply(SCOPE, [Fill([(3, 3)])])
        assert str((await claims(at.intake)).acknowledged()) == "1-3"
        await at.intake.apply(SCOPE, [Last(5)])
        with pytest.raises(SequenceRefusedError) as caught:
            await at.intake.apply(SCOPE, [Last(6)])
        assert caught.value.refusal is Refusal.BEYOND_LAST
        await at.say(5)
        assert (await claims(at.intake)).state.phase is SequencePhase.COMPLETE
        await at.intake.apply(SCOPE, [Terminate()])
        assert outcomes(await at.say(6)) == ["terminated"]
        await at.intake.apply(SCOPE, [Reset()])
        assert outcomes(await at.say(1)) == [ACCEPTED]
        assert await at.numbers() == [1, 2, 5, 1]


async def test_a_reset_in_the_same_group_parts_what_came_before_and_after(database: str) -> None:
    async with spoken(database) as at:
        await at.say(3)
        reset = asyncio.create_task(at.intake.apply(SCOPE, [Reset()]))
        before = asyncio.create_task(at.intake.receive(message(1)))
        after = asyncio.create_task(receive_together(at.intake, [message(2), message(3)]))
        await asyncio.gather(reset, before, after)
        assert await at.numbers() == [1, 2, 3]
        assert await at.rows("SELECT number, stage FROM instep_inbox") == [(3, 3)]


async def test_a_full_buffer_refuses_and_loses_nothing(database: str) -> None:
    async with spoken(database, sequence=SequencerSettings(limit_messages=2)) as at:
        assert outcomes(await at.say(2, 3, 4, 1, 4)) == [ACCEPTED] * 2 + ["full"] + [ACCEPTED] * 2
        assert await at.numbers() == [1, 2, 3, 4]


async def test_of_two_receivers_the_earlier_is_fenced(database: str) -> None:
    async with spoken(database) as one:
        await one.say(1)
        async with spoken(database) as two:
            await two.say(2)
            with pytest.raises(FencedError):
                await one.say(3)
            with pytest.raises(FencedError):
                await one.receiver.wait()
            assert await two.numbers() == [1, 2]


async def test_hostile_texts_and_times_are_stored(database: str) -> None:
    async with spoken(database) as at:
        scope = "nul\x00 and \udc00 and é"
        hostile: dict[str, Any] = {"id": "\x00", "sender": "\x00\udfff", "attributes": b"\xff\x00"}
        assert outcomes(await at.say(1, scope=scope, expires_at_us=2**80, **hostile)) == [ACCEPTED]
        assert outcomes(await at.say(1, 2**70, -7, scope=scope)) == [
            DUPLICATE,
            "out-of-range",
            "out-of-range",
        ]
        assert len(await at.delivered(None)) == 1


async def test_retention_trims_delivered_messages_and_identifiers(database: str) -> None:
    store = SqlStore(database, messages_retention_records=3, dedup_max_records=2)
    async with spoken(store=store) as at:
        await at.say(1, 2, 3, 4, 5)
        assert await at.numbers() == [3, 4, 5]
        for id in "abcd":
            await at.say(-1, id=id)
        assert outcomes(await at.say(-1, id="d")) == [DUPLICATE]
        assert outcomes(await at.say(-1, id="a")) == [ACCEPTED]


async def test_delivered_messages_are_bounded_in_bytes(database: str) -> None:
    """The oldest go, whatever came between two counts, and with another retention beside it."""
    limit_bytes = 100 * (1_000 + 300)
    store = SqlStore(database, messages_retention_bytes=limit_bytes, messages_retention_s=3600)
    async with spoken(store=store) as at:
        for number in range(1, 301):
            await at.say(number, body=b"x" * 1_000)
        kept = await at.numbers()
        assert 100 <= len(kept) <= 250
        assert kept == list(range(301 - len(kept), 301))
        ((counted_to, size_bytes),) = await at.rows(
            "SELECT counted_to, size_bytes FROM instep_message_size"
        )
        assert size_bytes <= limit_bytes
        ((real,),) = await at.rows(
            f"SELECT sum(length(body) + 300) FROM instep_message WHERE id <= {counted_to}"
        )
        assert real == size_bytes


async def test_a_sequence_without_gaps_stays_small(database: str) -> None:
    async with spoken(database, sequence=SequencerSettings(gap_policy=GapPolicy.WAIT)) as at:
        sizes = []
        for first in range(1, 2_001, 500):
            await receive_together(
                at.intake, [message(n, digest=b"x" * 16) for n in range(first, first + 500)]
            )
            rows = await at.rows("SELECT length(state) FROM instep_sequence")
            sizes.append(rows[0][0])
        assert sizes[-1] <= sizes[0] + 20


async def test_long_names_of_sequences_do_not_fill_the_memory() -> None:
    async with spoken("sqlite://") as at:
        most_chars, intake = 0, cast(Any, at.intake)
        for first in range(0, 5_000, 500):
            named = [f"{number}{'x' * 4_000}" for number in range(first, first + 500)]
            await receive_together(at.intake, [message(1, scope=scope) for scope in named])
            most_chars = max(most_chars, sum(map(len, intake._store._row_ids)))
        assert 10_000_000 < most_chars < 17_000_000
        assert await at.rows("SELECT count(*) FROM instep_sequence") == [(5_000,)]


async def test_our_own_messages_survive_until_acknowledged(database: str) -> None:
    async with SqlStore(database) as store:
        await store.open("east")
        kept = store.messages()
        await kept.open("spoken", handled=False)
        assert await kept.load_outbox("t") is None
        outbox = Outbox()
        for number in (1, 2, 3):
            sent = outbox.append(f"m{number}", 4, ["bob", "eve"], number)
            state = outbox.checkpoint()
            await kept.save_outbox("t", state, outbox.durable, {sent.number: b"body"})
            outbox.committed(state)
        outbox.acknowledge("bob", Ranges.of((1, 3)), Ranges(), 10)
        outbox.acknowledge("eve", Ranges.of((1, 2)), Ranges(), 10)
        state = outbox.checkpoint()
        await kept.save_outbox("t", state, outbox.durable)
    async with SqlStore(database) as store:
        await store.open("east")
        kept = store.messages()
        await kept.open("spoken", handled=False)
        assert await kept.load_outbox("t") == state
        assert [s.number for s in state.sent] == [3]
        assert await kept.outboxes() == ["t"]
        assert await kept.outbox_bodies("t", [1, 3]) == {3: b"body"}


async def test_streams_of_a_store_do_not_show_the_receiver(database: str) -> None:
    async with spoken(database) as at:
        await at.say(1, 3)
        assert await at.store.reader.streams() == []
        assert await at.store.known_streams() == []
        (one,) = [s async for s in at.store.reader.sequences()]
        assert (one.stream, one.held, one.waiting, one.blocked) == (SCOPE, 1, 0, False)
        assert str(one.state.received) == "1,3"

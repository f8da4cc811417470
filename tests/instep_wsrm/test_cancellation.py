"""The text of the cancellation proposal, message by message, with its own numbers.

Its sections: 2 requesting, 3 acknowledging, 4 at the end of a sequence, 5 filling gaps.
"""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.instep_wsrm.rm_kit import (
    RM_10,
    RM_11,
    Answer,
    Site,
    about,
    message,
    ranges,
    running,
    sequence,
)

pytestmark = pytest.mark.asyncio
BOTH = pytest.mark.parametrize("rm", [RM_10, RM_11])


async def sent(site: Site, name: str, *numbers: int, rm: str = RM_11) -> Answer:
    answer = None
    for number in numbers:
        answer = await site.say(sequence(name, number), message(number), rm=rm)
        assert answer.status == 200, answer
    assert answer is not None
    return answer


@BOTH
async def test_section_2_and_3_messages_3_to_5_are_cancelled(rm: str) -> None:
    async with running() as site:
        name = await site.create(rm=rm)
        await sent(site, name, 1, 2, rm=rm)
        answer = await site.say(about("SequenceCancel", name, ranges((3, 5))), rm=rm)
        assert answer.cancelled == [(3, 5)]
        assert answer.ranges() == [(1, 2)]
        for number in (3, 4, 5):
            late = await site.say(sequence(name, number), message(number), rm=rm)
            assert late.status == 200
            assert (late.ranges(), late.cancelled) == ([(1, 2)], [(3, 5)])
        answer = await sent(site, name, 6, rm=rm)
        assert (answer.ranges(), answer.cancelled) == ([(1, 2), (6, 6)], [(3, 5)])
        assert await site.numbers(name) == [1, 2, 6]


async def test_section_3_what_was_received_is_acknowledged_as_usual() -> None:
    async with running() as site:
        name = await site.create()
        await sent(site, name, 1, 2, 4)
        answer = await site.say(about("SequenceCancel", name, ranges((1, 5))))
        assert answer.ranges() == [(1, 2), (4, 4)]
        assert answer.cancelled == [(3, 3), (5, 5)]
        assert await site.numbers(name) == [1, 2, 4]


async def test_section_3_nothing_was_cancelled() -> None:
    async with running() as site:
        name = await site.create()
        await sent(site, name, 1, 2)
        answer = await site.say(about("SequenceCancel", name, ranges((1, 2))))
        assert answer.cancelled == []
        assert answer.ranges() == [(1, 2)]
        assert (await site.say(about("SequenceCancel", name))).cancelled == []


async def test_section_3_the_cancelled_ranges_are_cumulative() -> None:
    async with running() as site:
        name = await site.create()
        await site.say(about("SequenceCancel", name, ranges((3, 4))))
        answer = await site.say(about("SequenceCancel", name, ranges((8, 9), (5, 5))))
        assert answer.cancelled == [(3, 5), (8, 9)]
        assert (await site.say(about("AckRequested", name))).cancelled == [(3, 5), (8, 9)]


@pytest.mark.parametrize("local", ["MessageRange", "AcknowledgementRange", "AcknowledgmentRange"])
async def test_every_spelling_of_the_range_is_read(local: str) -> None:
    async with running() as site:
        name = await site.create()
        asked = about("SequenceCancel", name, ranges((3, 5), (9, 9), local=local))
        assert (await site.say(asked)).cancelled == [(3, 5), (9, 9)]
        asked = about("SequenceFill", name, ranges((1, 2), (9, 9), local=local))
        answer = await site.say(asked)
        assert (answer.ranges(), answer.cancelled) == ([(1, 2), (9, 9)], [(3, 5)])


async def test_section_4_the_last_message_cancels_8_and_9_then_the_sequence_ends() -> None:
    async with running() as site:
        name = await site.create(rm=RM_10)
        await sent(site, name, 1, 2, 3, 4, 5, 6, 7, rm=RM_10)
        last = sequence(name, 10, "<w:LastMessage/>")
        cancel = about("SequenceCancel", name, ranges((8, 9)))
        answer = await site.say(last + cancel, message(10), rm=RM_10)
        assert answer.ranges() == [(1, 7), (10, 10)]
        assert answer.cancelled == [(8, 9)]
        ended = await site.say(body=about("TerminateSequence", name), rm=RM_10)
        assert ended.status == 202
        assert await site.numbers(name) == [1, 2, 3, 4, 5, 6, 7, 10]


@pytest.mark.parametrize("local", ["CloseSequence", "TerminateSequence"])
async def test_section_4_a_cancellation_with_the_end_of_a_1_1_sequence(local: str) -> None:
    async with running() as site:
        name = await site.create()
        await sent(site, name, 1, 2, 3, 4, 5, 6, 7, 10)
        last = "<w:LastMsgNumber>10</w:LastMsgNumber>"
        cancel = about("SequenceCancel", name, ranges((8, 9)))
        answer = await site.say(cancel, about(local, name, last))
        assert (answer.ranges(), answer.final) == ([(1, 7), (10, 10)], True)
        assert answer.cancelled == [(8, 9)]
        assert await site.numbers(name) == [1, 2, 3, 4, 5, 6, 7, 10]


async def test_section_4_after_the_close_the_doubt_can_still_be_resolved() -> None:
    async with running() as site:
        name = await site.create()
        await sent(site, name, 1, 3)
        await site.say(body=about("CloseSequence", name))
        answer = await site.say(about("SequenceCancel", name, ranges((1, 3))))
        assert (answer.ranges(), answer.cancelled) == ([(1, 1), (3, 3)], [(2, 2)])


async def test_section_5_the_gap_of_messages_7_to_9_is_filled() -> None:
    async with running() as site:
        name = await site.create()
        await sent(site, name, 1, 2, 3, 4, 5, 6)
        assert (await sent(site, name, 10)).ranges() == [(1, 6), (10, 10)]
        answer = await site.say(about("SequenceFill", name, ranges((7, 9))))
        assert answer.ranges() == [(1, 10)]
        assert await site.numbers(name) == [1, 2, 3, 4, 5, 6, 10]
        late = await sent(site, name, 8)
        assert late.ranges() == [(1, 10)]
        assert await site.numbers(name) == [1, 2, 3, 4, 5, 6, 10]


async def test_section_5_filling_what_was_cancelled_compacts_both() -> None:
    async with running() as site:
        name = await site.create()
        await sent(site, name, 1, 2)
        await site.say(about("SequenceCancel", name, ranges((3, 5))))
        await sent(site, name, 6)
        answer = await site.say(about("SequenceFill", name, ranges((3, 5))))
        assert answer.ranges() == [(1, 6)]
        assert answer.cancelled is None
        state = await site.receiver._intake.state(name)  # type: ignore[union-attr]
        assert state is not None
        assert not state.cancelled


async def test_section_5_a_fill_may_overlap_what_was_received() -> None:
    async with running() as site:
        name = await site.create()
        await sent(site, name, 1, 2, 4)
        answer = await site.say(about("SequenceFill", name, ranges((1, 6))))
        assert answer.ranges() == [(1, 6)]
        assert await site.numbers(name) == [1, 2, 4]


async def test_section_5_a_fill_names_one_number_too_and_travels_within_a_sequence() -> None:
    async with running() as site:
        name = await site.create()
        one = "<w:MessageNumber>2</w:MessageNumber>"
        assert (await site.say(about("SequenceFill", name, one))).ranges() == [(2, 2)]
        answer = await site.say(sequence(name, 1, ranges((3, 4))), message(1))
        assert answer.ranges() == [(1, 4)]
        answer = await site.say(about("Sequence", name, ranges((6, 6))))
        assert answer.ranges() == [(1, 4), (6, 6)]
        assert await site.numbers(name) == [1]


async def test_a_message_a_cancellation_and_a_fill_in_one_envelope() -> None:
    async with running() as site:
        name = await site.create()
        headers = (
            sequence(name, 1)
            + about("SequenceCancel", name, ranges((2, 3)))
            + about("SequenceFill", name, ranges((5, 6)))
        )
        answer = await site.say(headers, message(1))
        assert (answer.ranges(), answer.cancelled) == ([(1, 1), (5, 6)], [(2, 3)])


@pytest.mark.parametrize(
    ("asked", "fault"),
    [
        (("SequenceFill", ((1, 3),)), "SequenceClosed"),
        (("SequenceCancel", ((1, 2**63),)), "MessageNumberRollover"),
    ],
)
async def test_what_is_refused_changes_nothing(
    asked: tuple[str, tuple[tuple[int, int], ...]], fault: str
) -> None:
    async with running() as site:
        name = await site.create()
        await sent(site, name, 1, 3)
        await site.say(body=about("CloseSequence", name))
        answer = await site.say(about(asked[0], name, ranges(*asked[1])))
        assert answer.fault == fault
        answer = await site.say(about("SequenceCancel", name))
        assert (answer.ranges(), answer.cancelled) == ([(1, 1), (3, 3)], [])


@pytest.mark.parametrize("seed", range(3))
async def test_the_ranges_never_overlap_and_no_cancelled_number_is_delivered(
    seed: int, tmp_path: Path
) -> None:
    chance, url = random.Random(seed), f"sqlite:///{tmp_path}/rm.db"
    promised: set[int] = set()
    async with running(url) as site:
        name = await site.create()
    for _ in range(4):
        async with running(url) as site:
            for _ in range(15):
                low = chance.randint(1, 30)
                high = low + chance.randint(0, 3)
                kind = chance.choice(["message", "message", "SequenceCancel", "SequenceFill"])
                if kind == "message":
                    answer = await site.say(sequence(name, low), message(low))
                else:
                    answer = await site.say(about(kind, name, ranges((low, high))))
                received = numbers_of(answer.ranges())
                cancelled = numbers_of(answer.cancelled)
                assert not received & cancelled
                assert promised <= cancelled | received
                promised |= cancelled
            delivered = await site.numbers(name)
            assert delivered == sorted(set(delivered))
            assert not promised & set(delivered)


def numbers_of(pairs: list[tuple[int, int]] | None) -> set[int]:
    return {number for low, high in pairs or () for number in range(low, high + 1)}

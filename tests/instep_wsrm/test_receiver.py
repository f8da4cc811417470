"""The life of a sequence at its destination, over real HTTP and the real store."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from lxml import etree

from instep.sequencing import NumberEnd
from tests.instep_wsrm.rm_kit import (
    RM_10,
    RM_11,
    S11,
    S12,
    WSA_04,
    WSA_05,
    about,
    create,
    message,
    ranges,
    running,
    sequence,
    until,
)

pytestmark = pytest.mark.asyncio


@pytest.mark.parametrize("soap", [S11, S12])
@pytest.mark.parametrize("wsa", [WSA_04, WSA_05])
@pytest.mark.parametrize("rm", [RM_10, RM_11])
async def test_messages_are_acknowledged_and_delivered_in_order(
    soap: str, wsa: str, rm: str
) -> None:
    spoken = {"soap": soap, "wsa": wsa, "rm": rm}
    async with running() as site:
        name = await site.create(**spoken)
        for number, acknowledged in ((2, [(2, 2)]), (1, [(1, 2)]), (2, [(1, 2)]), (3, [(1, 3)])):
            answer = await site.say(sequence(name, number), message(number), **spoken)
            assert answer.status == 200
            assert answer.ranges() == acknowledged
            assert answer.root is not None
            assert etree.QName(answer.root).namespace == soap
            assert etree.QName(answer.all("Action")[0]).namespace == wsa
            assert answer.text("Action") == f"{rm}/SequenceAcknowledgement"
            assert answer.text("RelatesTo") == "urn:uuid:m"
        delivered = await site.delivered(name)
        assert [one.number for one in delivered] == [1, 2, 3]
        body = etree.fromstring(delivered[0].body)
        assert (body.tag, body[0].text) == ("{urn:rmpeer}notify", "1")
        assert b'"action":"urn:rmpeer/notify"' in delivered[0].attributes


async def test_nothing_received_is_none_in_1_1_and_no_header_in_1_0() -> None:
    async with running() as site:
        name = await site.create()
        answer = await site.say(about("AckRequested", name))
        assert answer.ranges() == []
        assert answer.all("None")
        old = await site.create(rm=RM_10)
        answer = await site.say(about("AckRequested", old), rm=RM_10)
        assert (answer.status, answer.raw) == (202, b"")


async def test_close_ends_with_a_final_acknowledgement_and_terminate_may_come_again() -> None:
    async with running() as site:
        name = await site.create()
        await site.say(sequence(name, 1), message(1))
        await site.say(sequence(name, 3), message(3))
        last = "<w:LastMsgNumber>3</w:LastMsgNumber>"
        for _ in range(2):
            answer = await site.say(body=about("CloseSequence", name, last))
            assert answer.all("CloseSequenceResponse")
            assert (answer.ranges(), answer.final) == ([(1, 1), (3, 3)], True)
        assert await site.numbers(name) == [1, 3]
        answer = await site.say(sequence(name, 1), message(1))
        assert (answer.ranges(), answer.final) == ([(1, 1), (3, 3)], True)
        assert (await site.say(sequence(name, 2), message(2))).fault == "SequenceClosed"
        for _ in range(2):
            answer = await site.say(body=about("TerminateSequence", name, last))
            assert answer.all("TerminateSequenceResponse")
            assert answer.final
        assert (await site.say(sequence(name, 1), message(1))).fault == "SequenceTerminated"
        assert (await site.say(about("AckRequested", name))).fault == "SequenceTerminated"
        assert await site.numbers(name) == [1, 3]


async def test_the_last_message_of_1_0_takes_a_number_and_is_not_delivered() -> None:
    async with running() as site:
        name = await site.create(rm=RM_10)
        await site.say(sequence(name, 1), message(1), rm=RM_10)
        for _ in range(2):
            answer = await site.say(
                sequence(name, 2, "<w:LastMessage/>"), rm=RM_10, action=f"{RM_10}/LastMessage"
            )
            assert answer.ranges() == [(1, 2)]
        answer = await site.say(sequence(name, 3), message(3), rm=RM_10)
        assert answer.fault == "LastMessageNumberExceeded"
        answer = await site.say(body=about("TerminateSequence", name), rm=RM_10)
        assert (answer.status, answer.raw) == (202, b"")
        assert await site.numbers(name) == [1]


async def test_the_last_message_of_1_0_may_carry_a_body() -> None:
    async with running() as site:
        name = await site.create(rm=RM_10)
        answer = await site.say(sequence(name, 1, "<w:LastMessage/>"), message(1), rm=RM_10)
        assert answer.ranges() == [(1, 1)]
        assert await site.numbers(name) == [1]


async def test_the_highest_number_used_makes_a_gap_known() -> None:
    async with running() as site:
        name = await site.create(rm=RM_10)
        await site.say(sequence(name, 1), message(1), rm=RM_10)
        used = "<w:MaxMessageNumberUsed>4</w:MaxMessageNumberUsed>"
        await site.say(about("AckRequested", name, used), rm=RM_10)
        intake = site.receiver._intake
        assert intake is not None
        assert await intake.missing(name) == [(2, 4)]


@pytest.mark.parametrize(
    ("asked", "granted"),
    [
        ("", "PT3600S"),
        ("<w:Expires>PT0S</w:Expires>", "PT3600S"),
        ("<w:Expires>PT1M</w:Expires>", "PT60S"),
        ("<w:Expires>P1D</w:Expires>", "PT3600S"),
    ],
)
async def test_a_sequence_is_granted_no_more_than_is_allowed(asked: str, granted: str) -> None:
    async with running(max_expires_s=3600) as site:
        answer = await site.say(body=create(more=asked))
        assert answer.text("Expires") == granted


async def test_an_expired_sequence_is_terminated() -> None:
    async with running() as site:
        answer = await site.say(body=create(more="<w:Expires>PT2S</w:Expires>"))
        name = answer.text("Identifier")
        assert (await site.say(sequence(name, 1), message(1))).ranges() == [(1, 1)]
        await asyncio.sleep(2.1)
        assert (await site.say(sequence(name, 2), message(2))).fault == "SequenceTerminated"


async def test_an_idle_sequence_is_terminated_then_forgotten() -> None:
    times = {"idle_timeout_s": 0.2, "keep_ended_s": 0.2}
    async with running(sequence=times) as site:
        name = await site.create()
        intake = site.receiver._intake
        assert intake is not None

        async def forgotten() -> bool:
            return await intake.state(name) is None

        await until(forgotten)
        assert (await site.say(sequence(name, 1), message(1))).fault == "UnknownSequence"


@pytest.mark.parametrize(
    ("incomplete", "named", "delivered"),
    [("deliver", "NoDiscard", [1, 3]), ("discard", "DiscardFollowingFirstGap", [1])],
)
async def test_what_is_behind_a_gap_at_the_end(
    incomplete: str, named: str, delivered: list[int]
) -> None:
    async with running(sequence={"incomplete": incomplete}) as site:
        answer = await site.say(body=create())
        assert answer.text("IncompleteSequenceBehavior") == named
        name = answer.text("Identifier")
        for number in (1, 3):
            await site.say(sequence(name, number), message(number))
        await site.say(body=about("TerminateSequence", name))
        assert await site.numbers(name) == delivered


@pytest.mark.parametrize(
    ("options", "delivered"),
    [
        ({"in_order": False}, [3, 1]),
        ({"in_order": True}, [1]),
        ({"delivery_assurance": "AtLeastOnce"}, [1]),
    ],
)
async def test_the_delivery_assurances(options: dict[str, Any], delivered: list[int]) -> None:
    async with running(**options) as site:
        name = await site.create()
        for number in (3, 1, 1, 3):
            await site.say(sequence(name, number), message(number))
        found = await site.numbers(name)
        assert sorted(found) == sorted(delivered)
        if options.get("in_order", True):
            assert found == delivered


async def test_at_most_once_gives_up_what_does_not_come_in_time() -> None:
    gaps = {"gap_deadline_s": 0.05, "gap_attempts": 0}
    async with running(delivery_assurance="AtMostOnce", sequence=gaps) as site:
        name = await site.create()
        for number in (1, 3):
            await site.say(sequence(name, number), message(number))

        async def delivered() -> bool:
            return await site.numbers(name) == [1, 3]

        await until(delivered)
        late = await site.say(sequence(name, 2), message(2))
        assert (late.status, late.fault) == (400, "SequenceClosed")
        assert (await site.say(about("AckRequested", name))).ranges() == [(1, 1), (3, 3)]
        assert await site.numbers(name) == [1, 3]


async def test_a_message_that_is_never_sent_again_is_in_no_range_and_is_recorded_as_lost() -> None:
    """1 and 5 are lost, and each second message asks, as with gSOAP's plugin (`wsrm.md`)."""
    async with running() as site:
        name, asked = await site.create(), ""
        answers = []
        for number in (2, 3, 4, 6, 1):
            asked = about("AckRequested", name) if number % 2 == 0 else ""
            answer = await site.say(sequence(name, number) + asked, message(number))
            answers.append(answer.ranges())
        last = await site.say(body=about("CloseSequence", name))
        assert answers == [[(2, 2)], [(2, 3)], [(2, 4)], [(2, 4), (6, 6)], [(1, 4), (6, 6)]]
        assert (last.ranges(), last.final) == ([(1, 4), (6, 6)], True)
        assert await site.numbers(name) == [1, 2, 3, 4, 6]
        ends = await site.store.reader.numbers("rm", name)
        assert [(one.low, one.high) for one in ends if one.end is NumberEnd.LOST] == [(5, 5)]


async def test_two_sequences_in_one_envelope() -> None:
    async with running() as site:
        first, second = await site.create(), await site.create()
        await site.say(sequence(second, 1), message(1))
        asked = about("AckRequested", second)
        answer = await site.say(sequence(first, 1) + asked, message(1))
        named = [one[0].text for one in answer.all("SequenceAcknowledgement")]
        assert named == [first, second]


async def test_a_sequence_goes_on_after_a_restart(tmp_path: object) -> None:
    url = f"sqlite:///{tmp_path}/rm.db"
    async with running(url) as site:
        name = await site.create()
        await site.say(sequence(name, 1), message(1))
        await site.say(sequence(name, 3), message(3))
    async with running(url) as site:
        assert (await site.say(about("AckRequested", name))).ranges() == [(1, 1), (3, 3)]
        assert (await site.say(sequence(name, 2), message(2))).ranges() == [(1, 3)]
        assert await site.numbers(name) == [1, 2, 3]
        assert (await site.say(about("SequenceCancel", name, ranges((4, 4))))).cancelled == [(4, 4)]

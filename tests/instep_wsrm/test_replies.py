"""Request and reply: what the handler returns is the body of the response, also for a copy."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from lxml import etree

from instep import HandlerConnection, Message
from tests.instep_wsrm.rm_kit import (
    ANONYMOUS,
    RM_10,
    RM_11,
    about,
    create,
    message,
    ranges,
    running,
    sequence,
)

pytestmark = pytest.mark.asyncio

OFFER = (
    "<w:Offer><w:Identifier>urn:uuid:replies</w:Identifier><w:Endpoint><a:Address>"
    f"{ANONYMOUS}</a:Address></w:Endpoint></w:Offer>"
)


class Clerk:
    """A handler that replies with how often it was called."""

    def __init__(self) -> None:
        self.calls = 0

    async def __call__(self, message: Message, connection: HandlerConnection) -> bytes | None:
        del connection
        self.calls += 1
        index = etree.fromstring(message.body).findtext("index")
        if index == "silent":
            return None
        if index == "wrong":
            return b"no xml"
        return f"<r xmlns='urn:r'>{index} in call {self.calls}</r>".encode()


async def test_a_copy_gets_the_same_reply_also_after_a_restart(tmp_path: Path) -> None:
    url, clerk = f"sqlite:///{tmp_path}/rm.db", Clerk()
    async with running(url, handler=clerk, reply_actions=["*"]) as site:
        name = await site.create()
        for _ in range(2):
            answer = await site.say(sequence(name, 1), message("first"))
            assert answer.text("r") == "first in call 1"
            assert answer.ranges() == [(1, 1)]
            assert answer.text("Action") == "urn:rmpeer/notifyResponse"
    async with running(url, handler=clerk, reply_actions=["*"]) as site:
        answer = await site.say(sequence(name, 1), message("first"))
        assert answer.text("r") == "first in call 1"
        assert (await site.say(sequence(name, 2), message("second"))).text(
            "r"
        ) == "second in call 2"


async def test_a_reply_waits_for_what_is_before_its_request() -> None:
    async with running(handler=Clerk(), reply_actions=["urn:rmpeer/notify"]) as site:
        name = await site.create()
        later = asyncio.create_task(site.say(sequence(name, 2), message("b")))
        await asyncio.sleep(0.05)
        assert not later.done()
        first = await site.say(sequence(name, 1), message("a"))
        assert first.text("r") == "a in call 1"
        assert (await later).text("r") == "b in call 2"


async def test_a_reply_that_does_not_come_in_time_comes_with_a_copy() -> None:
    options = {"reply_actions": ["*"], "reply_timeout_s": 0.05}
    async with running(handler=Clerk(), **options) as site:  # type: ignore[arg-type]
        name = await site.create()
        answer = await site.say(sequence(name, 2), message("b"))
        assert (answer.status, answer.raw) == (202, b"")
    async with running(handler=Clerk(), reply_actions=["*"]) as site:
        name = await site.create()
        for _ in range(2):
            answer = await site.say(sequence(name, 1), message("silent"))
            assert (answer.ranges(), answer.text("r")) == ([(1, 1)], "")
        answer = await site.say(sequence(name, 2), message("wrong"))
        assert answer.all("Value")[0].text == "s:Receiver"
        assert (await site.say(about("AckRequested", name))).ranges() == [(1, 2)]


async def test_a_cancelled_request_has_no_reply_and_is_not_waited_for() -> None:
    async with running(handler=Clerk(), reply_actions=["*"], reply_timeout_s=600) as site:
        name = await site.create()
        await site.say(about("SequenceCancel", name, ranges((1, 1))))
        answer = await site.say(sequence(name, 1), message("a"))
        assert (answer.ranges(), answer.cancelled) == ([], [(1, 1)])


async def test_nobody_takes_an_offered_sequence_over() -> None:
    async with running(handler=Clerk(), reply_actions=["*"]) as site:
        name = (await site.say(body=create(more=OFFER))).text("Identifier")
        await site.say(sequence(name, 1), message("a"))
        await site.say(body=create(more=OFFER))
        ack = about(
            "SequenceAcknowledgement",
            "urn:uuid:replies",
            '<w:AcknowledgementRange Lower="1" Upper="1"/>',
        )
        assert (await site.say(ack)).status == 202
        assert (await site.say(sequence(name, 2) + ack, message("b"))).text("r") == "b in call 2"


async def test_other_actions_are_one_way() -> None:
    async with running(handler=Clerk(), reply_actions=["urn:rmpeer/echo"]) as site:
        name = await site.create()
        answer = await site.say(sequence(name, 1), message("a"))
        assert (answer.ranges(), answer.text("r")) == ([(1, 1)], "")


@pytest.mark.parametrize("rm", [RM_10, RM_11])
async def test_the_reply_to_a_message_has_its_number_in_the_offered_sequence(rm: str) -> None:
    async with running(handler=Clerk(), reply_actions=["*"]) as site:
        answer = await site.say(body=create(more=OFFER), rm=rm)
        assert answer.all("Accept")
        name = answer.text("Identifier")
        for number in (1, 2):
            answer = await site.say(sequence(name, number), message(number), rm=rm)
            (header,) = answer.all("Sequence")
            assert [one.text for one in header] == ["urn:uuid:replies", str(number)]
        ack = about(
            "SequenceAcknowledgement",
            "urn:uuid:replies",
            '<w:AcknowledgementRange Lower="1" Upper="2"/>',
        )
        assert (await site.say(ack, rm=rm)).status == 202
        answer = await site.say(body=about("TerminateSequence", name), rm=rm)
        if rm == RM_10:
            assert answer.text("Action") == f"{RM_10}/TerminateSequence"
            assert "urn:uuid:replies" in [one.text for one in answer.all("Identifier")]


async def test_an_offer_is_declined_where_it_is_set_or_its_endpoint_is_not_allowed() -> None:
    async with running(accept_offers=False) as site:
        assert not (await site.say(body=create(more=OFFER))).all("Accept")
    async with running() as site:
        offer = OFFER.replace(ANONYMOUS, "http://127.0.0.1:9/replies")
        assert not (await site.say(body=create(more=offer))).all("Accept")

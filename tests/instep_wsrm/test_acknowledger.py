"""Acknowledgements, requests to send again and ends, to an AcksTo that is an address."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from lxml import etree

from instep_soap import SoapRequest, xml_bytes
from tests.instep_soap.soap_kit import serving
from tests.instep_wsrm.rm_kit import (
    RM_10,
    RM_11,
    S11,
    S12,
    Answer,
    Site,
    about,
    create,
    message,
    ranges,
    running,
    sequence,
    until,
)

pytestmark = pytest.mark.asyncio


class Receiving:
    """The end of a source that receives acknowledgements."""

    def __init__(self) -> None:
        self.url = ""
        self.got: list[Answer] = []

    async def take(self, request: SoapRequest) -> None:
        envelope = request.envelope.body or request.envelope.headers
        root = envelope[0].getroottree().getroot()
        self.got.append(Answer(202, xml_bytes(root)))

    @property
    def last(self) -> Answer | None:
        return self.got[-1] if self.got else None


@asynccontextmanager
async def receiving(**options: object) -> AsyncIterator[tuple[Site, Receiving]]:
    source = Receiving()
    async with serving(source.take) as endpoint:
        origin = endpoint.address.removesuffix("/soap")
        source.url = endpoint.address
        async with running(allow_endpoints=[origin], **options) as site:  # type: ignore[arg-type]
            yield site, source


async def acknowledged(source: Receiving, expected: list[tuple[int, int]]) -> Answer:
    async def there() -> Answer | None:
        return next((one for one in source.got if one.ranges() == expected), None)

    found: Answer = await until(there)
    return found


@pytest.mark.parametrize("soap", [S11, S12])
@pytest.mark.parametrize("rm", [RM_10, RM_11])
async def test_acknowledgements_go_to_the_address_with_its_parameters(soap: str, rm: str) -> None:
    async with receiving() as (site, source):
        parameters = (
            "<a:ReferenceParameters><k:Key xmlns:k='urn:k'>7</k:Key></a:ReferenceParameters>"
        )
        body = create(source.url).replace("</a:Address>", f"</a:Address>{parameters}")
        name = (await site.say(body=body, soap=soap, rm=rm)).text("Identifier")
        answer = await site.say(sequence(name, 1), message(1), soap=soap, rm=rm)
        assert (answer.status, answer.raw) == (202, b"")
        found = await acknowledged(source, [(1, 1)])
        assert found.root is not None
        assert etree.QName(found.root).namespace == soap
        assert found.text("Action") == f"{rm}/SequenceAcknowledgement"
        assert found.text("To") == source.url
        assert found.text("Key") == "7"


async def test_one_acknowledgement_stands_for_many_messages_unless_it_is_asked_for() -> None:
    async with receiving(acknowledgement_interval_s=600.0) as (site, source):
        name = (await site.say(body=create(source.url))).text("Identifier")
        for number in (1, 2, 3):
            await site.say(sequence(name, number), message(number))
        assert source.got == []
        await site.say(about("AckRequested", name))
        await acknowledged(source, [(1, 3)])
        assert len(source.got) == 1
        await site.say(about("SequenceCancel", name, ranges((5, 6))))

        async def cancelled() -> bool:
            return source.last is not None and source.last.cancelled == [(5, 6)]

        await until(cancelled)


async def test_the_interval_ends_without_being_asked() -> None:
    async with receiving(acknowledgement_interval_s=0.05) as (site, source):
        name = (await site.say(body=create(source.url))).text("Identifier")
        await site.say(sequence(name, 1), message(1))
        await acknowledged(source, [(1, 1)])
        await site.say(sequence(name, 2), message(2))
        await acknowledged(source, [(1, 2)])


async def test_a_source_that_asks_all_the_time_holds_up_no_other() -> None:
    async with receiving(acknowledgement_interval_s=0.3) as (site, source):
        eager = (await site.say(body=create(source.url))).text("Identifier")
        other = (await site.say(body=create(source.url))).text("Identifier")
        await site.say(sequence(other, 1), message(1))

        async def other_is_acknowledged() -> bool:
            await site.say(about("AckRequested", eager))
            return any(one.text("Identifier") == other for one in source.got)

        await until(other_is_acknowledged)


async def test_missing_numbers_are_asked_for() -> None:
    gaps = {"gap_deadline_s": 0.05, "gap_repeat_s": 0.05, "gap_attempts": 1000}
    async with receiving(sequence=gaps, acknowledgement_interval_s=600.0) as (site, source):
        name = (await site.say(body=create(source.url))).text("Identifier")
        await site.say(sequence(name, 4), message(4))

        async def asked() -> bool:
            numbers = source.last.all("Nack") if source.last is not None else []
            return [one.text for one in numbers] == ["1", "2", "3"]

        await until(asked)


@pytest.mark.parametrize("soap", [S11, S12])
async def test_the_end_of_a_sequence_is_reported(soap: str) -> None:
    async with receiving(acknowledgement_interval_s=600.0) as (site, source):
        body = create(source.url, "<w:Expires>PT2S</w:Expires>")
        name = (await site.say(body=body, soap=soap)).text("Identifier")

        async def told() -> bool:
            return source.last is not None and source.last.fault == "SequenceTerminated"

        await until(told)
        assert source.last is not None
        assert name in [one.text for one in source.last.all("Identifier")]
        assert source.last.text("Action") == f"{RM_11}/fault"


async def test_a_peer_that_is_away_costs_no_message() -> None:
    async with running(allow_endpoints=["http://127.0.0.1:9"]) as site:
        name = (await site.say(body=create("http://127.0.0.1:9/acks"))).text("Identifier")
        other = await site.create()
        for number in (1, 2, 3):
            assert (await site.say(sequence(name, number), message(number))).status == 202
            answer = await site.say(sequence(other, number), message(number))
            assert answer.ranges() == [(1, number)]
        assert await site.numbers(name) == [1, 2, 3]


async def test_a_response_goes_to_an_allowed_reply_to() -> None:
    async with receiving() as (site, source):
        reply_to = f"<a:ReplyTo><a:Address>{source.url}</a:Address></a:ReplyTo>"
        answer = await site.say(reply_to, create())
        assert (answer.status, answer.raw) == (202, b"")

        async def created() -> str:
            return source.last.text("Identifier") if source.last else ""

        name = await until(created)
        assert source.last is not None
        assert source.last.text("RelatesTo") == "urn:uuid:m"
        assert (await site.say(sequence(name, 1), message(1))).ranges() == [(1, 1)]

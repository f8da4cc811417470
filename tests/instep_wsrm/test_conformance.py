"""Sources that break one duty each, and sources that hold them all, judged by what they sent."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from instep.conformance import (
    ConformanceReport,
    Event,
    RequestAnswered,
    RuleStatus,
    event_line,
    judge,
    read_events,
)
from instep_wsrm.conformance import wsrm_rules
from instep_wsrm.wire.names import RM10
from tests.instep_soap.soap_kit import count_templates
from tests.instep_wsrm.gsoap_kit import build
from tests.instep_wsrm.rm_kit import (
    RM_11,
    Site,
    about,
    envelope,
    message,
    ranges,
    running,
    sequence,
)
from tests.instep_wsrm.test_gsoap import linked

BEHIND_S = 0.25
"""So much later nothing is under way any more."""


def broken(report: ConformanceReport) -> list[str]:
    return [one.rule.removeprefix("wsrm-") for one in report.broken]


class Source:
    """Raw messages of one sequence, each with a MessageID of its own."""

    def __init__(self, site: Site) -> None:
        self.site, self.name = site, ""

    async def begin(self) -> Source:
        self.name = await self.site.create()
        return self

    async def send(
        self, *numbers: object, body: object = None, id: str = "", must: str = "true"
    ) -> None:
        for number in numbers:
            await self.site.say(
                sequence(self.name, number, must=must),
                message(number if body is None else body),
                message_id=id or f"urn:uuid:{number}",
            )

    async def end(self, local: str, last: int | None = None, headers: str = "") -> None:
        stated = "" if last is None else f"<w:LastMsgNumber>{last}</w:LastMsgNumber>"
        await self.site.say(headers, about(local, self.name, stated))


async def _number_0(source: Source) -> None:
    await source.send(0, 1)


async def _not_created(source: Source) -> None:
    source.name = "urn:uuid:of-its-own"
    await source.send(1)


async def _unreadable(source: Source) -> None:
    await source.send("three")


async def _other_content(source: Source) -> None:
    await source.send(1)
    await source.send(1, body="other")


async def _other_id(source: Source) -> None:
    await source.send(1)
    await source.send(1, id="urn:uuid:other")


async def _same_id(source: Source) -> None:
    await source.send(1, id="urn:uuid:one")
    await source.send(2, id="urn:uuid:one")


async def _forgotten(source: Source) -> None:
    await source.send(1, 2, 4)
    await source.end("CloseSequence", 4)


async def _skipped(source: Source) -> None:
    await source.send(1, 3)
    await source.end("TerminateSequence", 3)


async def _low_last(source: Source) -> None:
    await source.send(1, 2)
    await source.end("CloseSequence", 1)


async def _new_after_close(source: Source) -> None:
    await source.send(1)
    await source.end("CloseSequence", 1)
    await asyncio.sleep(BEHIND_S)
    await source.send(2)


async def _after_end(source: Source) -> None:
    await source.send(1)
    await source.end("TerminateSequence", 1)
    await asyncio.sleep(BEHIND_S)
    await source.send(1)


async def _cancelled_used(source: Source) -> None:
    await source.send(1)
    await source.site.say(about("SequenceCancel", source.name, ranges((2, 2))))
    await asyncio.sleep(BEHIND_S)
    await source.send(2)


async def _acknowledged_cancelled(source: Source) -> None:
    await source.send(1, 2)
    await source.site.say(about("SequenceCancel", source.name, ranges((2, 3))))


async def _filled_used(source: Source) -> None:
    await source.send(1)
    await source.site.say(about("SequenceFill", source.name, ranges((2, 2))))
    await asyncio.sleep(BEHIND_S)
    await source.send(2)


async def _not_to_be_understood(source: Source) -> None:
    await source.send(1, must="")


async def _two_lasts(source: Source) -> None:
    await source.send(1, 2)
    await source.end("CloseSequence", 2)
    await source.end("TerminateSequence", 3)


async def _never_gives_up(source: Source) -> None:
    await source.send(1)
    await source.end("TerminateSequence", 1)
    source.name = "urn:uuid:of-its-own"
    await source.send(2, 2, 2, 2, 2)


async def _offer_without_endpoint(source: Source) -> None:
    offer = "<w:Offer><w:Identifier>urn:uuid:back</w:Identifier></w:Offer>"
    await source.site.create(more=offer)


VARIANTS: dict[Callable[[Source], Awaitable[None]], list[str]] = {
    _number_0: ["well-formed"],
    _not_created: ["created"],
    _unreadable: ["well-formed"],
    _other_content: ["content-repeated"],
    _other_id: ["headers-repeated"],
    _same_id: ["ids-unique"],
    _forgotten: ["sent-again"],
    _skipped: ["sent-again"],
    _low_last: ["last-stated"],
    _new_after_close: ["none-after-close"],
    _after_end: ["none-after-end"],
    _cancelled_used: ["cancelled-kept"],
    _filled_used: ["filled-kept"],
    _not_to_be_understood: ["must-understand"],
    _two_lasts: ["last-stated"],
    _never_gives_up: ["created", "gives-up"],
    _offer_without_endpoint: ["offer"],
    _acknowledged_cancelled: ["cancels-unacknowledged"],
}


@pytest.mark.asyncio
@pytest.mark.parametrize("variant", VARIANTS, ids=lambda one: one.__name__.strip("_"))
async def test_a_source_that_breaks_a_duty_is_named_by_it(
    variant: Callable[[Source], Awaitable[None]],
) -> None:
    events: list[Event] = []
    async with running(recorder=events.append) as site:
        await variant(await Source(site).begin())
    report = judge(wsrm_rules(), read_events([event_line(one) for one in events]))
    assert broken(report) == VARIANTS[variant]
    for found in report.broken:
        assert found.reason
        assert any(b"Envelope" in one.content for one in found.evidence)


@pytest.mark.asyncio
async def test_an_envelope_that_is_no_xml_is_named_and_a_stranger_s_bytes_are_not() -> None:
    events: list[Event] = []
    async with running(recorder=events.append) as site:
        await site.post(b"GET me out of here")
        await site.post(b"<s:Envelope xmlns:s='urn:other'>")
        await site.say(message("of an application without WS-RM"))
        assert broken(judge(wsrm_rules(), events)) == []
        await site.post(envelope(sequence("urn:s", 1), message(1))[:-9])
    report = judge(wsrm_rules(), events)
    assert broken(report) == ["well-formed"]
    assert report.messages == 4
    assert RM_11.encode() in report.broken[0].evidence[0].content


@pytest.mark.asyncio
async def test_what_is_recorded_goes_the_shorter_way(monkeypatch: pytest.MonkeyPatch) -> None:
    events: list[Event] = []
    found = count_templates(monkeypatch)
    async with running(recorder=events.append) as site:
        await (await Source(site).begin()).send(1, 2, 3, must="true")
    assert any(found)
    answers = [one for one in events if isinstance(one, RequestAnswered)]
    assert len(answers) == 4
    assert all(one.confirmed and b"Envelope" in one.content for one in answers)


@pytest.mark.asyncio
async def test_nothing_is_beyond_the_last_message_of_1_0() -> None:
    events: list[Event] = []
    async with running(recorder=events.append) as site:
        spoken = {"rm": RM10.namespace}
        name = await site.create(**spoken)
        for number, more in ((1, ""), (2, "<w:LastMessage/>"), (3, "")):
            header = sequence(name, number, more, must="1")
            await site.say(header, message(number), message_id=f"urn:uuid:{number}", **spoken)
    assert broken(judge(wsrm_rules(), events)) == ["none-beyond-last"]


@pytest.mark.asyncio
async def test_a_source_that_holds_all_duties_is_not_accused() -> None:
    """Its messages come twice, late and in any order; some are cancelled, and filled again."""
    events: list[Event] = []
    async with running(recorder=events.append) as site:
        source = await Source(site).begin()
        await source.send(3, 1, 1, 2, 3)
        await site.say(about("SequenceCancel", source.name, ranges((5, 6))))
        await source.send(7)
        await site.say(about("AckRequested", source.name))
        await source.send(4, 4)
        await source.end("CloseSequence", 7)
        await source.send(7)
        await source.end("TerminateSequence", 7)
    report = judge(wsrm_rules(), events)
    assert broken(report) == []
    held = {one.rule for one in report.results if one.status is RuleStatus.HELD}
    duties = ["content-repeated", "sent-again", "ids-unique", "cancelled-kept", "last-stated"]
    assert held >= {f"wsrm-{duty}" for duty in duties}


@pytest.mark.asyncio
@pytest.mark.parametrize("version", ["1.0", "1.1"])
async def test_of_gsoap_only_what_is_known_is_found(tmp_path: Path, version: str) -> None:
    """Over a way that fails. Its Sequence header need not be understood."""
    events: list[Event] = []
    async with (
        running(recorder=events.append) as site,
        linked(site.url, 0.1, 7) as (url, _),
    ):
        program = build(tmp_path, version)
        process = await asyncio.create_subprocess_exec(
            str(program), url, "20", stdout=asyncio.subprocess.DEVNULL
        )
        async with asyncio.timeout(100):
            await process.wait()
    report = judge(wsrm_rules(), events)
    assert broken(report) == (["must-understand"] if version == "1.1" else [])
    assert report.messages > 20

"""One subscription: the rules of the sequence by their numbers, and what versions of the MDIB show.

The rules of a consumer (SDPi R1031 to R1033): reconnect where the first number is not 1, where one
is missing and where numbers go back; a repeat is answered; what it repeats was durable.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from instep import Phase, Position
from instep.errors import BaselineError, UnreachableError
from instep.model.records import Record, RecordChunk, RecordType
from instep.runtime.streams.sequenced_feed import SequencedFeedSettings
from instep_sdpi.session import ReportSession
from instep_sdpi.wire.mdib import read_mdib
from instep_sdpi.wire.names import MdibPart
from instep_soap import SoapFaultError, SoapRequest, read_envelope
from instep_soap.addressing import read_addressing
from tests.instep_sdpi.sdpi_kit import SEQUENCE, envelope, metric_report, metric_state, report

pytestmark = pytest.mark.asyncio

FULL = frozenset(MdibPart) - {MdibPart.WAVEFORM}
MDIB = """<msg:GetMdibResponse MdibVersion="{version}" SequenceId="{sequence}"><msg:Mdib>
  <dom:MdDescription><dom:Mds Handle="mds0"><dom:Vmd Handle="vmd0"><dom:Channel Handle="ch0">
    <dom:Metric xsi:type="dom:NumericMetricDescriptor" Handle="m1"/></dom:Channel></dom:Vmd>
    <dom:SystemContext Handle="sc"><dom:PatientContext Handle="pc"/></dom:SystemContext>
  </dom:Mds></dom:MdDescription>
  <dom:MdState>
    <dom:State xsi:type="dom:NumericMetricState" DescriptorHandle="m1"/>
    <dom:State xsi:type="dom:ChannelState" DescriptorHandle="ch0"/>
    <dom:State xsi:type="dom:PatientContextState" DescriptorHandle="pc" Handle="p1"/>
    {more}
  </dom:MdState></msg:Mdib></msg:GetMdibResponse>"""


class Driver:
    """Plays the provider and the runtime of one session."""

    def __init__(
        self,
        covers: frozenset[MdibPart] = FULL,
        *,
        reorder_window_s: float = 60.0,
        answer_within_s: float = 60.0,
    ) -> None:
        settings = SequencedFeedSettings(
            reorder_window_s=reorder_window_s, answer_within_s=answer_within_s, apply_ahead=True
        )
        self.session = ReportSession("mdib", covers, settings)
        self.tasks: list[asyncio.Task[None]] = []
        self.committed = 0

    def baseline(self, version: int = 0, sequence: str = SEQUENCE, more: str = "") -> list[Record]:
        """Read an MDIB; it is durable."""
        raw = envelope(MDIB.format(version=version, sequence=sequence, more=more))
        mdib = read_mdib(read_envelope(raw))
        rows = [row for page in mdib.pages() for row in self.session.baseline(page)]
        self.session.baseline_read(mdib.version)
        self.session.feed.committed(Position(phase=Phase.BASELINING))
        self.session.feed.committed(Position(phase=Phase.ALIGNING))
        return rows

    async def send(
        self, body: str, number: str | None = None, header: str = ""
    ) -> asyncio.Task[None]:
        """Send a report; the task ends with its answer."""
        raw = envelope(body, number, header)
        read = read_envelope(raw)
        request = SoapRequest(read, read_addressing(read.headers), "127.0.0.1", "/sdpi/s", raw)
        task = asyncio.create_task(self.session.receive(request))
        self.tasks.append(task)
        for _ in range(3):
            await asyncio.sleep(0)
        return task

    async def receive(self) -> RecordChunk:
        async with asyncio.timeout(5):
            return await self.session.feed.receive()

    async def commit(self) -> RecordChunk:
        """Make durable what has arrived."""
        chunk = await self.receive()
        offsets = [record.offset for record in chunk.records if isinstance(record, Record)]
        self.session.feed.committed(
            Position(phase=Phase.ALIGNED, offsets={self.session.feed.session: max(offsets)})
        )
        await asyncio.sleep(0)
        return chunk

    async def realigned(self) -> str:
        """Why the stream is realigned."""
        while not (reason := (await self.receive()).realign):
            pass
        return reason

    async def close(self) -> None:
        self.session.feed.close()
        await asyncio.gather(*self.tasks, return_exceptions=True)


@pytest_asyncio.fixture
async def driver() -> AsyncIterator[Driver]:
    made = Driver()
    yield made
    await made.close()


@pytest_asyncio.fixture
async def quick() -> AsyncIterator[Driver]:
    made = Driver(reorder_window_s=0.02)
    yield made
    await made.close()


def keys(chunk: RecordChunk) -> list[str]:
    return [record.key for record in chunk.records]


def message_id(text: str) -> str:
    return f"<wsa:MessageID>{text}</wsa:MessageID>"


# -- the numbers ---------------------------------------------------------------------------------


async def test_r0800_r1031_the_first_number_is_1(quick: Driver) -> None:
    quick.baseline()
    answer = await quick.send(metric_report("1", 1), "2")
    assert "message 1 " in await quick.realigned()
    assert not answer.done()


async def test_r0800_the_first_report_may_come_before_the_subscription_is_answered(
    driver: Driver,
) -> None:
    answer = await driver.send(metric_report("1", 1), "1")
    driver.baseline(0)
    assert keys(await driver.commit()) == ["state/m1"]
    await answer


async def test_r0801_a_report_is_confirmed_when_it_is_durable(driver: Driver) -> None:
    driver.baseline()
    answer = await driver.send(metric_report("1", 1), "1")
    chunk = await driver.receive()
    assert keys(chunk) == ["state/m1"]
    assert not answer.done()
    driver.session.feed.committed(
        Position(phase=Phase.ALIGNED, offsets={driver.session.feed.session: 1})
    )
    await answer


async def test_r0801_r1031_a_number_that_stays_missing_realigns(quick: Driver) -> None:
    quick.baseline()
    await quick.send(metric_report("1", 1), "1")
    await quick.commit()
    await quick.send(metric_report("3", 3), "3")
    assert "message 2 " in await quick.realigned()


async def test_r0801_reports_that_were_swapped_are_healed(driver: Driver) -> None:
    driver.baseline()
    late = await driver.send(metric_report("2", 2), "2")
    assert keys(await driver.commit()) == ["state/m1"]
    await late
    both = f"<msg:ReportPart>{metric_state('1')}{metric_state('1', 'm2')}</msg:ReportPart>"
    missing = await driver.send(report("EpisodicMetricReport", both, 1), "1")
    assert keys(await driver.commit()) == ["state/m2"]
    await missing


async def test_r1031_numbers_that_go_back_realign(driver: Driver) -> None:
    driver.baseline()
    for number in (1, 2, 3):
        await driver.send(metric_report("1", number), str(number))
        await driver.commit()
    answer = await driver.send(metric_report("9", 9), "2")
    with pytest.raises(SoapFaultError):
        await answer
    chunk = await driver.receive()
    assert "went back" in chunk.realign
    assert chunk.deviations == {"number-backwards": 1}


async def test_r1032_r1033_a_repeat_is_answered_and_not_applied_again(driver: Driver) -> None:
    driver.baseline()
    first = await driver.send(metric_report("1", 1), "1", message_id("urn:uuid:1"))
    repeat = await driver.send(metric_report("1", 1), "1", message_id("urn:uuid:2"))
    assert not repeat.done()
    assert keys(await driver.commit()) == ["state/m1"]
    await first
    await repeat
    await (await driver.send(metric_report("1", 1), "1"))


async def test_r0802_r1032_other_content_without_a_fault_of_ours_realigns(driver: Driver) -> None:
    driver.baseline()
    await driver.send(metric_report("1", 1), "1")
    await driver.commit()
    answer = await driver.send(metric_report("2", 2), "1")
    with pytest.raises(SoapFaultError):
        await answer
    chunk = await driver.receive()
    assert chunk.realign
    assert chunk.deviations == {"content-changed": 1}


async def test_r0802_other_content_after_a_fault_of_ours_counts() -> None:
    driver = Driver(answer_within_s=0.02)
    refused = await driver.send(metric_report("1", 1), "1")
    with pytest.raises(SoapFaultError) as caught:
        await refused
    assert (caught.value.status, caught.value.retry_after_s) == (503, 1)
    await driver.send(metric_report("2", 2), "1")
    driver.baseline()
    chunk = await driver.receive()
    (record,) = chunk.decode().records
    assert b'"Value":"2"' in record.body
    assert not chunk.realign
    await driver.close()


@pytest.mark.parametrize("number", ["0", "-1", "1.5", "", "NaN"])
async def test_what_is_no_number_realigns_and_is_not_confirmed(driver: Driver, number: str) -> None:
    driver.baseline()
    answer = await driver.send(metric_report("1", 1), number)
    with pytest.raises(SoapFaultError):
        await answer
    chunk = await driver.receive()
    assert chunk.realign
    assert chunk.deviations == {"number-unreadable": 1}


@pytest.mark.parametrize("number", ["01", " 1 ", "+1"])
async def test_another_spelling_of_1_is_1(driver: Driver, number: str) -> None:
    driver.baseline()
    answer = await driver.send(metric_report("1", 1), number)
    assert keys(await driver.commit()) == ["state/m1"]
    await answer


async def test_a_number_beyond_counting_is_a_gap(quick: Driver) -> None:
    quick.baseline()
    await quick.send(metric_report("1", 1), "1" + "0" * 30)
    assert "messages 1-" in await quick.realigned()


@pytest.mark.parametrize(("first", "second"), [("1", None), (None, "2")])
async def test_a_session_has_numbers_or_has_none(
    driver: Driver, first: str | None, second: str | None
) -> None:
    driver.baseline()
    await driver.send(metric_report("1", 1), first)
    await driver.commit()
    with pytest.raises(SoapFaultError):
        await (await driver.send(metric_report("2", 2), second))
    assert (await driver.receive()).deviations == {"number-missing": 1}


# -- without numbers -----------------------------------------------------------------------------


async def test_without_numbers_reports_count_as_they_arrive(driver: Driver) -> None:
    driver.baseline()
    for version in (1, 2, 3):
        answer = await driver.send(metric_report(str(version), version))
        await driver.commit()
        await answer


async def test_without_numbers_a_repeat_has_the_same_message_id(driver: Driver) -> None:
    driver.baseline()
    answers = [
        await driver.send(metric_report("1", 1), header=message_id("urn:uuid:1")) for _ in range(2)
    ]
    assert len((await driver.commit()).records) == 1
    await asyncio.gather(*answers)


async def test_without_numbers_a_full_subscription_sees_a_version_missing(driver: Driver) -> None:
    driver.baseline(5)
    await driver.send(metric_report("1", 6))
    await driver.commit()
    await driver.send(metric_report("1", 8))
    assert "no report of MdibVersion 7" in await driver.realigned()


async def test_versions_have_legal_gaps_in_a_partial_subscription() -> None:
    driver = Driver(frozenset({MdibPart.METRIC}))
    driver.baseline(5)
    for version in (6, 9, 14):
        await driver.send(metric_report("1", version))
        assert not (await driver.commit()).realign
    await driver.close()


async def test_versions_have_legal_gaps_where_waveforms_are_not_subscribed(driver: Driver) -> None:
    driver.baseline(
        5, more='<dom:State xsi:type="dom:RealTimeSampleArrayMetricState" DescriptorHandle="w"/>'
    )
    for version in (6, 9, 14):
        await driver.send(metric_report("1", version))
        assert not (await driver.commit()).realign


@pytest.mark.parametrize("numbered", [True, False])
async def test_a_version_that_goes_back_realigns(driver: Driver, numbered: bool) -> None:
    driver.baseline()
    await driver.send(metric_report("1", 1), "1" if numbered else None)
    await driver.commit()
    await driver.send(metric_report("2", 2), "2" if numbered else None)
    await driver.commit()
    with pytest.raises(SoapFaultError):
        await (await driver.send(metric_report("1", 1), "3" if numbered else None))
    assert (await driver.receive()).deviations == {"version-backwards": 1}


# -- the MDIB ------------------------------------------------------------------------------------


@pytest.mark.parametrize("numbered", [True, False])
async def test_a_report_of_another_mdib_realigns_and_is_not_confirmed(
    driver: Driver, numbered: bool
) -> None:
    driver.baseline(5)
    answer = await driver.send(metric_report("1", 1, "urn:uuid:other"), "1" if numbered else None)
    with pytest.raises(SoapFaultError, match="anew"):
        await answer
    assert "urn:uuid:other" in (await driver.receive()).realign


async def test_a_baseline_of_another_mdib_than_the_reports_realigns(driver: Driver) -> None:
    await driver.send(metric_report("1", 7), "1")
    driver.baseline(1, "urn:uuid:other")
    assert "anew" in await driver.realigned()


async def test_what_the_mdib_contains_is_confirmed_and_not_applied(driver: Driver) -> None:
    old = await driver.send(metric_report("1", 1), "1")
    new = await driver.send(metric_report("2", 2), "2")
    driver.baseline(1)
    (record,) = (await driver.commit()).records
    assert record.offset == 2
    await old
    await new


async def test_reports_that_were_under_way_are_older_than_the_mdib(driver: Driver) -> None:
    driver.baseline(10)
    answers = [await driver.send(metric_report("1", 7 + n), str(n)) for n in (1, 2)]
    await driver.send(metric_report("3", 11), "3")
    chunk = await driver.commit()
    assert [record.offset for record in chunk.records] == [3]
    assert not chunk.realign
    await asyncio.gather(*answers)


async def test_a_partial_subscription_states_only_what_it_covers() -> None:
    driver = Driver(frozenset({MdibPart.METRIC}))
    assert [row.key for row in driver.baseline()] == ["state/m1"]
    await driver.close()
    full = Driver()
    rows = full.baseline()
    assert sorted(row.key for row in rows) == [
        "descriptor/ch0",
        "descriptor/m1",
        "descriptor/mds0",
        "descriptor/pc",
        "descriptor/sc",
        "descriptor/vmd0",
        "state/ch0",
        "state/m1",
        "state/p1",
    ]
    assert {row.appended_at_us for row in rows} == {full.session.feed.opened_at_us}
    await full.close()


async def test_a_deleted_descriptor_ends_all_that_it_contains(driver: Driver) -> None:
    driver.baseline()
    part = """<msg:ReportPart ModificationType="Del" ParentDescriptor="mds0">
      <msg:Descriptor xsi:type="dom:VmdDescriptor" Handle="vmd0"/></msg:ReportPart>"""
    await driver.send(report("DescriptionModificationReport", part), "1")
    chunk = await driver.receive()
    assert sorted(keys(chunk)) == [
        "descriptor/ch0",
        "descriptor/m1",
        "descriptor/vmd0",
        "state/ch0",
        "state/m1",
    ]
    assert {record.kind for record in chunk.records} == {RecordType.DELETE}


async def test_a_descriptor_that_ends_and_is_created_again_in_one_report_is_there(
    driver: Driver,
) -> None:
    driver.baseline()
    parts = """<msg:ReportPart ModificationType="Del">
      <msg:Descriptor xsi:type="dom:NumericMetricDescriptor" Handle="m1"/></msg:ReportPart>
      <msg:ReportPart ModificationType="Crt" ParentDescriptor="ch0">
      <msg:Descriptor xsi:type="dom:NumericMetricDescriptor" Handle="m1"/></msg:ReportPart>"""
    await driver.send(report("DescriptionModificationReport", parts), "1")
    kinds = [(record.key, record.kind) for record in (await driver.receive()).records]
    assert kinds[-1] == ("descriptor/m1", RecordType.CREATE_UPDATE)
    assert ("descriptor/m1", RecordType.DELETE) in kinds[:-1]


async def test_descriptors_that_end_behind_a_gap_realign(driver: Driver) -> None:
    driver.baseline()
    part = """<msg:ReportPart ModificationType="Del">
      <msg:Descriptor xsi:type="dom:VmdDescriptor" Handle="vmd0"/></msg:ReportPart>"""
    with pytest.raises(SoapFaultError):
        await (await driver.send(report("DescriptionModificationReport", part, 3), "3"))
    assert "behind a gap" in await driver.realigned()


async def test_what_ended_while_the_mdib_was_read_ends_with_all_that_it_contains(
    driver: Driver,
) -> None:
    part = """<msg:ReportPart ModificationType="Del">
      <msg:Descriptor xsi:type="dom:VmdDescriptor" Handle="vmd0"/></msg:ReportPart>"""
    await driver.send(report("DescriptionModificationReport", part, 3), "1")
    driver.baseline(2)
    chunk = await driver.receive()
    assert sorted(keys(chunk)) == [
        "descriptor/ch0",
        "descriptor/m1",
        "descriptor/vmd0",
        "state/ch0",
        "state/m1",
    ]
    assert not chunk.realign


async def test_what_had_ended_in_the_mdib_that_was_read_is_not_ended_again(driver: Driver) -> None:
    part = """<msg:ReportPart ModificationType="Del">
      <msg:Descriptor xsi:type="dom:VmdDescriptor" Handle="gone"/></msg:ReportPart>"""
    await driver.send(report("DescriptionModificationReport", part, 2), "1")
    driver.baseline(2)
    await driver.send(metric_report("7", 3), "2")
    assert keys(await driver.receive()) == ["state/m1"]


async def test_an_mdib_that_cannot_be_read_whole_is_no_baseline(driver: Driver) -> None:
    with pytest.raises(BaselineError, match="no xsi:type"):
        driver.baseline(more='<dom:State DescriptorHandle="m1"/>')


# -- what else may come --------------------------------------------------------------------------


@pytest.mark.parametrize(
    "body", ["<msg:Unheard/>", "", '<msg:EpisodicMetricReport MdibVersion="x" SequenceId="s"/>']
)
async def test_a11_a_numbered_message_that_is_no_report_goes_to_quarantine(
    driver: Driver, body: str
) -> None:
    driver.baseline()
    answer = await driver.send(body, "1")
    (bad,) = (await driver.receive()).unreadable
    assert bad.stream == "mdib"
    await answer
    await driver.send(metric_report("2", 2), "2")
    assert keys(await driver.receive()) == ["state/m1"]


@pytest.mark.parametrize("status", ["SourceShuttingDown", "urn:x/SourceCancelling"])
async def test_the_end_of_the_subscription_ends_the_session(driver: Driver, status: str) -> None:
    driver.baseline()
    end = f"<wse:SubscriptionEnd><wse:Status>{status}</wse:Status></wse:SubscriptionEnd>"
    await (await driver.send(end))
    with pytest.raises(UnreachableError, match=status.rpartition("/")[2]):
        await driver.receive()

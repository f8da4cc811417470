"""One subscription: what its reports, their numbers and their versions mean for the stream.

`instep.runtime.streams.sequenced_feed` decides about the numbers, and answers when a report is
durable. This module reads the reports for it, and decides by what BICEPS has besides numbers: the
version of the MDIB, and the sequence in which versions count. A provider that does not number its
reports gets numbers in the order of their arrival, which one connection with one report under way
keeps (SDPi R1014).
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable
from hashlib import blake2b
from typing import Final
from uuid import uuid4

import msgspec

from instep.conformance import MeteredRecorder, RequestAnswered, RequestReceived
from instep.errors import BaselineError, UnreachableError
from instep.model.records import Record, RecordType, Unreadable
from instep.ports.listener import Receipt, ReceiptOutcome
from instep.runtime.clock import steady_now
from instep.runtime.streams.sequenced_feed import (
    NumberedRecords,
    SequencedFeed,
    SequencedFeedSettings,
)
from instep.sequencing.transitions import Refusal
from instep_http.offload import Offload
from instep_sdpi.containment import Containment
from instep_sdpi.wire.entities import Entity, MdibVersion, descriptor_key
from instep_sdpi.wire.eventing import read_end
from instep_sdpi.wire.mdib import MdibPage
from instep_sdpi.wire.names import MdibPart
from instep_sdpi.wire.report_sequence import NumberError, read_message_number
from instep_sdpi.wire.reports import NumberedReport, Report, read_report
from instep_soap import (
    FaultCode,
    SoapFaultError,
    SoapRequest,
    XmlError,
    XmlLimits,
)

__all__ = ["ReportSession"]

_REMEMBERED_IDS: Final = 64
"""Message ids by which a repeat is recognised where reports have no numbers."""
_MAX_DESCRIPTORS: Final = 1_000_000
_ACCEPTED: Final = XmlLimits(max_elements=1 << 40)
"""No bound for what was within the bounds before."""
_COUNTED_PARTS: Final = frozenset(MdibPart) - {MdibPart.WAVEFORM}
"""Whoever gets reports on all of these (and on waveforms, where there are any) gets every version
of the MDIB.
"""


class _Received(msgspec.Struct, frozen=True, gc=False):
    """An envelope, as far as it could be read."""

    stated: int | None
    """Its number; None where it states none."""
    report: Report | None
    digest: bytes
    message_id: str
    raw: bytes
    """The envelope."""
    no_number: str = ""
    """Why its number cannot be read; empty otherwise."""
    no_report: str = ""
    """Why it is no report …"""
    content: bytes = b""
    """… and the content of its body then."""


def _read(request: SoapRequest) -> _Received:
    envelope, message_id = request.envelope, request.addressing.message_id
    stated, no_number = None, ""
    try:
        stated = read_message_number(envelope.headers)
    except NumberError as error:
        no_number = str(error)
    no_report = "no report of BICEPS"
    try:
        report = read_report(envelope)
    except XmlError as error:
        report, no_report = None, error.message
    if report is not None:
        return _Received(stated, report, report.digest(), message_id, request.raw, no_number)
    content = envelope.content()
    digest = blake2b(content, digest_size=16).digest()
    return _Received(stated, None, digest, message_id, request.raw, no_number, no_report, content)


class ReportSession:
    """Reads the reports of one subscription into its feed. Used from one event loop.

    Args:
        stream: The id of the stream.
        covers: The parts of the MDIB that the subscription's reports keep up to date. Nothing else
            is given, so that nothing is stored that would become stale.
        settings: Of the feed.
        recorder: Is given each report and each answer.
        room: See `Recordable.record`.
        clock: Seconds since 1970.
    """

    def __init__(
        self,
        stream: str,
        covers: frozenset[MdibPart],
        settings: SequencedFeedSettings,
        clock: Callable[[], float] = steady_now,
        *,
        recorder: MeteredRecorder | None = None,
    ) -> None:
        self.stream = stream
        self.feed = SequencedFeed(uuid4().hex, settings, clock=clock)
        self._covers = covers
        self._recorder = recorder
        self._containment = Containment()
        self._numbered: bool | None = None
        """Whether reports are numbered; None before the first one."""
        self._highest = 0
        """The highest number that has arrived …"""
        self._reported: MdibVersion | None = None
        """… and the version of its report."""
        self._baseline: MdibVersion | None = None
        self._has_waveforms = False
        self._early_ends: list[tuple[str, MdibVersion, list[Record]]] = []
        """Descriptors that ended while it was not known what they contain, with the records of the
        report, which waits for the baseline.
        """
        self._ids: OrderedDict[str, int] = OrderedDict()
        self._reporter = ""
        """The name in the certificate of the provider; empty before its first report, and where no
        certificate is asked for.
        """

    def __repr__(self) -> str:
        return f"<ReportSession {self.stream} {self.feed!r}>"

    def admits(self, identity: str) -> bool:
        """Whether a sender with this name in its certificate may report: the first one alone."""
        self._reporter = self._reporter or identity
        return identity == self._reporter

    async def receive(self, request: SoapRequest, offload: Offload | None = None) -> None:
        """Handle an envelope that came to the address of the subscription. When this returns, it
        may be confirmed: what it states is durable. `offload`: where a large report is read.

        Raises `SoapFaultError`, and `Busy`: it is not confirmed.
        """
        end = read_end(request.envelope)
        if end is not None:
            self.feed.fail(UnreachableError(f"the provider has ended the subscription ({end})"))
            return
        size_bytes = len(request.raw)
        read = await (offload or Offload()).run(size_bytes, _read, request)
        answered: asyncio.Future[SoapFaultError | None] = asyncio.get_running_loop().create_future()

        def answer(fault: SoapFaultError | None) -> None:
            if not answered.done():
                answered.set_result(fault)

        self._take(read, answer)
        fault = await answered
        if fault is not None:
            raise fault

    def submit(
        self,
        read: NumberedReport,
        request: SoapRequest,
        answer: Callable[[SoapFaultError | None], None],
    ) -> None:
        """The same without a task, for a report that was read: `answer` is called once with the
        fault, or with None, at once or later. Of the request, the envelope is not used.
        """
        report, message_id = read.report, request.addressing.message_id
        self._take(_Received(read.number, report, report.digest(), message_id, request.raw), answer)

    def _take(self, received: _Received, answer: Callable[[SoapFaultError | None], None]) -> None:
        decided = answer if self._recorder is None else self._recorded(received, answer)
        try:
            message = self._message_of(received)
        except SoapFaultError as fault:
            decided(fault)
        else:
            self.feed.submit(message, lambda receipt: decided(_fault_of(receipt)))

    def _recorded(
        self, received: _Received, answer: Callable[[SoapFaultError | None], None]
    ) -> Callable[[SoapFaultError | None], None]:
        """Record a report, and return what records its answer and gives it."""
        record = self._recorder
        assert record is not None
        if not record.takes_next():
            return answer
        session, stated, at_us = self.feed.session, received.stated, self.feed.stamp_us()
        record(RequestReceived(at_us, session, stated, received.digest.hex(), received.raw))

        def decided(fault: SoapFaultError | None) -> None:
            record(RequestAnswered(self.feed.stamp_us(), session, stated, fault is None))
            answer(fault)

        return decided

    def baseline(self, page: MdibPage) -> list[Record]:
        """The rows of a page of the MDIB that this subscription covers; `baseline_read` follows
        after the last page.

        Raises `BaselineError`: an entity cannot be read.
        """
        for bad in page.unreadable:
            raise BaselineError(f"the MDIB has an entity that cannot be read: {bad.reason}")
        at_us = self.feed.opened_at_us
        records = []
        envelopes = _Envelopes(page.version)
        for entity in page.entities:
            self._containment.stated(entity)
            if entity.part is MdibPart.WAVEFORM:
                self._has_waveforms = True
            if entity.part in self._covers:
                records.append(self._record(entity, envelopes, "", at_us))
        return records

    def baseline_read(self, version: MdibVersion) -> None:
        """The baseline was read whole; it is of this version."""
        reported = self._reported
        if reported is not None and reported.counted_in != version.counted_in:
            self._begun_anew(reported, version)
            return
        self._baseline = version
        for handle, at, records in self._early_ends:
            if at.version > version.version:
                self._end_what_it_contains(handle, records)
        self._early_ends.clear()
        self.feed.baseline_version(version.version)

    # -- numbers and versions --------------------------------------------------------------------

    def _message_of(self, received: _Received) -> NumberedRecords:
        """The message for the feed. Raises `SoapFaultError`: there is none."""
        if received.no_number:
            self.feed.realign(received.no_number, deviation="number-unreadable")
            raise SoapFaultError(FaultCode.SENDER, received.no_number)
        number, size_bytes = self._number(received), len(received.raw)
        if received.report is not None:
            self._check_version(number, received.report)
            message = self._message(number, received.report, size_bytes)
        else:
            token = self._token(number)
            bad = Unreadable(self.stream, received.content, received.no_report, token)
            message = NumberedRecords(number=number, size_bytes=size_bytes, unreadable=[bad])
        if self._numbered:
            message.digest = received.digest
        self._highest = max(self._highest, number)
        return message

    def _number(self, received: _Received) -> int:
        """The number of a report: as stated, else as it arrives."""
        stated, message_id = received.stated, received.message_id
        numbered = stated is not None
        if self._numbered not in (None, numbered):
            reason = (
                "a report with a number came after one without"
                if numbered
                else ("a report without a number came after one with")
            )
            self.feed.realign(reason, deviation="number-missing")
            raise SoapFaultError(FaultCode.SENDER, reason)
        self._numbered = numbered
        if stated is not None:
            return stated
        known = self._ids.get(message_id)
        if known is not None:
            return known
        if message_id:
            self._ids[message_id] = self._highest + 1
            if len(self._ids) > _REMEMBERED_IDS:
                self._ids.popitem(last=False)
        return self._highest + 1

    def _check_version(self, number: int, report: Report) -> None:
        """Realign where the version of the MDIB shows that something is missing, or is another
        MDIB.
        """
        version, last = report.version, self._reported
        known = last or self._baseline
        if known is not None and known.counted_in != version.counted_in:
            self._begun_anew(known, version)
            raise SoapFaultError(FaultCode.RECEIVER, "the MDIB has begun anew")
        if number <= self._highest:
            return
        if last is not None and version.version < last.version:
            reason = f"MdibVersion went back from {last.version} to {version.version}"
            self.feed.realign(reason, deviation="version-backwards")
            raise SoapFaultError(FaultCode.RECEIVER, reason)
        if not self._numbered:
            self._check_gap(version.version)
        self._reported = version

    def _check_gap(self, version: int) -> None:
        """Without numbers, only whoever subscribes to all that changes the MDIB can see a gap."""
        if self._baseline is None:
            return
        last = max(self._baseline.version, self._reported.version if self._reported else 0)
        waveforms = {MdibPart.WAVEFORM} if self._has_waveforms else set()
        if version > last + 1 and _COUNTED_PARTS | waveforms <= self._covers:
            self.feed.realign(f"no report of MdibVersion {last + 1}: {version} came next")

    def _begun_anew(self, before: MdibVersion, now: MdibVersion) -> None:
        self.feed.realign(
            f"the MDIB has begun anew: SequenceId {now.sequence_id}, InstanceId {now.instance_id} "
            f"after {before.sequence_id}, {before.instance_id}"
        )

    # -- records ---------------------------------------------------------------------------------

    def _message(self, number: int, report: Report, size_bytes: int) -> NumberedRecords:
        at_us, token = self.feed.stamp_us(), self._token(number)
        if report.ends_some and number > self._highest + 1:
            # A report that is still to come may create what ends here.
            self.feed.realign("descriptors ended behind a gap")
        records: list[Record] = []
        envelopes = _Envelopes(report.version)
        for entity in report.entities:
            if entity.ends:
                if self._baseline is None:
                    self._early_ends.append((entity.descriptor, report.version, records))
                within = self._containment.within(entity.descriptor)
                records += [self._end(key, token, at_us, number) for key in within]
                continue
            self._containment.stated(entity)
            if entity.part in self._covers:
                records.append(self._record(entity, envelopes, token, at_us, number))
        if len(self._containment) + len(self._early_ends) > _MAX_DESCRIPTORS:
            self.feed.realign(f"more than {_MAX_DESCRIPTORS:,} descriptors came and went")
        return NumberedRecords(
            number=number,
            size_bytes=size_bytes,
            version=report.version.version,
            records=records,
            unreadable=[
                Unreadable(self.stream, one.raw, one.reason, token) for one in report.unreadable
            ],
        )

    def _end_what_it_contains(self, handle: str, records: list[Record]) -> None:
        """Let a report that waits end all that its descriptor contains, before what it creates."""
        own = next(one for one in records if one.ends and one.key == descriptor_key(handle))
        stated = {one.key for one in records if one.ends}
        records[:0] = [
            self._end(key, own.token, own.appended_at_us, own.offset)
            for key in self._containment.within(handle)
            if key not in stated
        ]

    def _record(
        self, entity: Entity, envelopes: _Envelopes, token: str, at_us: int, number: int = -1
    ) -> Record:
        parent = entity.parent
        if entity.part is MdibPart.DESCRIPTION:
            parent = parent or self._containment.parent_of(entity.descriptor)
        return Record(
            self.stream,
            entity.key,
            RecordType.CREATE_UPDATE,
            token,
            at_us,
            self.feed.session if token else "",
            number,
            entity.entity_class,
            entity.body,
            envelopes[parent, entity.source_mds],
            False,
            entity.key,
        )

    def _end(self, key: str, token: str, at_us: int, number: int) -> Record:
        return Record(
            stream=self.stream,
            key=key,
            kind=RecordType.DELETE,
            token=token,
            appended_at_us=at_us,
            partition=self.feed.session,
            offset=number,
            uuid=key,
        )

    def _token(self, number: int) -> str:
        return f"{self.feed.session}/{number}"


class _Envelopes(dict[tuple[str, str], bytes]):
    """What records of an MDIB version say besides their entities, by parent and source Mds: that of
    all states of a report is the same.
    """

    def __init__(self, version: MdibVersion) -> None:
        self._version = version

    def __missing__(self, where: tuple[str, str]) -> bytes:
        parent, source_mds = where
        envelope: dict[str, str | int] = {
            "mdib-version": self._version.version,
            "sequence-id": self._version.sequence_id,
        }
        if parent:
            envelope["parent"] = parent
        if source_mds:
            envelope["source-mds"] = source_mds
        self[where] = encoded = msgspec.json.encode(envelope)
        return encoded


def _fault_of(receipt: Receipt) -> SoapFaultError | None:
    """What a report is answered with; None: it is confirmed."""
    if receipt.outcome is not ReceiptOutcome.REFUSED:
        return None
    if receipt.refusal is Refusal.FULL:
        return SoapFaultError(
            FaultCode.RECEIVER,
            "the report is not durable yet: send it again",
            status=503,
            retry_after_s=1,
        )
    return SoapFaultError(FaultCode.RECEIVER, "the subscription is over")

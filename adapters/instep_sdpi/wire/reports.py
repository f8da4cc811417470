"""Reads a report: which entities it states, of which version of the MDIB."""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import blake2b
from typing import Final

import msgspec
from lxml.etree import _Element

from instep_sdpi.wire.entities import (
    MAX_HANDLE_CHARS,
    Entity,
    MdibVersion,
    UnreadableEntity,
    read_descriptors,
    read_mdib_version,
    read_state,
)
from instep_sdpi.wire.names import REPORTS, message_name
from instep_sdpi.wire.report_sequence import NumberError, read_message_number
from instep_soap import Envelope, XmlError, local_name

__all__ = ["NumberedReport", "Report", "read_numbered_report", "read_report"]

_DIGEST_BYTES: Final = 16
_STATES: Final = frozenset(
    message_name(f"{of}State")
    for of in ("Alert", "Component", "Context", "Metric", "Operation", "")
)
_DESCRIPTOR: Final = message_name("Descriptor")
_PART: Final = message_name("ReportPart")
_STREAM: Final = "WaveformStream"


class Report(msgspec.Struct, frozen=True):
    """A report, as far as it is about entities."""

    name: str
    version: MdibVersion
    entities: list[Entity] = []
    """In their order: one may be created and end in the same report."""
    unreadable: list[UnreadableEntity] = []

    @property
    def ends_some(self) -> bool:
        """Whether a descriptor has ended."""
        return any(one.ends for one in self.entities)

    def digest(self) -> bytes:
        """The same for two reports that are functionally identical: applying either has the same
        result (SDPi R0802). The spelling of the XML and the MessageID do not count.
        """
        digest = blake2b(digest_size=_DIGEST_BYTES)
        digest.update(msgspec.msgpack.encode(self))
        return digest.digest()


class NumberedReport(msgspec.Struct, frozen=True):
    """A report, and the number that its envelope states."""

    number: int | None
    """None where it states none."""
    report: Report


def read_numbered_report(envelope: Envelope) -> NumberedReport | None:
    """The report in an envelope, with its number; None: one of both cannot be read as a whole."""
    try:
        number, report = read_message_number(envelope.headers), read_report(envelope)
    except (NumberError, XmlError):
        return None
    return None if report is None or report.unreadable else NumberedReport(number, report)


def read_report(envelope: Envelope) -> Report | None:
    """The report in an envelope; None: its body is no report of BICEPS.

    A part that cannot be read is among `unreadable`. Raises `XmlError`: the report states no
    version of the MDIB.
    """
    if not envelope.body:
        return None
    body = envelope.body[0]
    name = local_name(str(body.tag))
    kind = REPORTS.get(name)
    if kind is None or body.tag != message_name(name):
        return None
    report = Report(name, read_mdib_version(body), [], [])
    if not kind.covers:
        return report
    if name == _STREAM:
        for element in body.iterchildren(message_name("State")):
            _add(report, read_state(element, default_class="RealTimeSampleArrayMetricState"))
        return report
    for part in body.iterchildren(_PART):
        for found in _read_part(part):
            _add(report, found)
    return report


def _read_part(part: _Element) -> Iterator[Entity | UnreadableEntity]:
    # What is too long for a handle is none: it would be repeated in every entity of the part.
    source_mds = (part.findtext(message_name("SourceMds")) or "").strip()
    source_mds = source_mds if len(source_mds) <= MAX_HANDLE_CHARS else ""
    parent = part.get("ParentDescriptor") or ""
    parent = parent if len(parent) <= MAX_HANDLE_CHARS else ""
    ends = (part.get("ModificationType") or "Upt").strip() == "Del"
    declared = part.nsmap
    for element in part:
        if element.tag == _DESCRIPTOR:
            for found in read_descriptors(element, parent=parent, source_mds=source_mds):
                if ends and isinstance(found, Entity):
                    yield msgspec.structs.replace(found, ends=True)
                else:
                    yield found
        elif element.tag in _STATES and not ends:
            yield read_state(element, source_mds=source_mds, declared=declared)


def _add(report: Report, found: Entity | UnreadableEntity) -> None:
    if isinstance(found, Entity):
        report.entities.append(found)
    else:
        report.unreadable.append(found)

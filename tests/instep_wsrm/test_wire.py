"""What is written is read again, whatever the numbers; what is damaged is a fault and no error."""

from __future__ import annotations

import contextlib

from hypothesis import given, settings
from hypothesis import strategies as st
from lxml import etree

from instep.model.ranges import Ranges
from instep.sequencing.claims import Claims
from instep.sequencing.settings import SequencerSettings
from instep.sequencing.state import SequencerState
from instep.sequencing.transitions import SequencePhase
from instep_soap import (
    SOAP11,
    SOAP12,
    WSA_2004,
    WSA_2005,
    Addressing,
    EndpointReference,
    SoapFaultError,
    SoapVersion,
    WsaVersion,
    new_envelope,
    read_envelope,
    xml_bytes,
)
from instep_wsrm.answers import (
    AcknowledgedSequence,
    Exchange,
    acknowledged_response,
    acknowledgements,
)
from instep_wsrm.wire import encoder
from instep_wsrm.wire.decoder import read_rm
from instep_wsrm.wire.messages import (
    AckRequest,
    CloseSequence,
    CreateSequence,
    NumberRanges,
    Pairs,
    RmMessage,
    SequenceHeader,
    TerminateSequence,
)
from instep_wsrm.wire.names import RM10, RM11, RmVersion
from tests.instep_wsrm.rm_kit import SHARED, check_valid

VERSIONS = st.sampled_from([RM10, RM11])
SOAPS = st.sampled_from([SOAP11, SOAP12])
NUMBERS = st.integers(1, 2**63 - 1)
PAIRS = st.lists(st.tuples(NUMBERS, NUMBERS).map(lambda pair: (min(pair), max(pair))), max_size=4)
NAMES = st.sampled_from(["urn:uuid:1", "http://fabrikam123.com/abc"])


@given(VERSIONS, SOAPS, NAMES, NUMBERS, PAIRS, PAIRS, st.booleans())
def test_headers_are_read_as_they_were_written(
    version: RmVersion,
    soap: SoapVersion,
    name: str,
    number: int,
    cancelled: Pairs,
    filled: Pairs,
    last: bool,
) -> None:
    root, header, _ = new_envelope(soap, WSA_2005, "urn:a")
    header.append(encoder.sequence(version, name, number, last=last))
    header.append(encoder.cancel(version, name, cancelled))
    header.append(encoder.fill(version, name, filled))
    header.append(encoder.ack_requested(version, name, number))
    raw = xml_bytes(root)
    assert read_rm(read_envelope(raw)) == RmMessage(
        version=version,
        sequence=SequenceHeader(name, number, last and version is RM10),
        cancels=(NumberRanges(name, cancelled),),
        fills=(NumberRanges(name, filled),),
        ack_requests=(AckRequest(name, number if version is RM10 else None),),
    )


@given(VERSIONS, NAMES, st.one_of(st.none(), NUMBERS), st.integers(0, 10**6))
def test_bodies_are_read_as_they_were_written(
    version: RmVersion, name: str, last: int | None, expires_s: int
) -> None:
    reference = EndpointReference(WSA_2005, "http://127.0.0.1:9/acks")
    stated = last if version is RM11 else None
    for body, expected in (
        (
            encoder.create_sequence(version, reference, expires_s=expires_s),
            CreateSequence(reference, float(expires_s)),
        ),
        (encoder.close_sequence(version, name, last), CloseSequence(name, stated)),
        (encoder.terminate_sequence(version, name, last), TerminateSequence(name, stated)),
    ):
        root, _, inside = new_envelope(SOAP12, WSA_2005, "urn:a")
        inside.append(body)
        assert read_rm(read_envelope(xml_bytes(root))).body == expected


@given(VERSIONS, NAMES, PAIRS, st.booleans())
def test_an_acknowledgement_is_valid_and_read_as_it_was_written(
    version: RmVersion, name: str, ranges: Pairs, final: bool
) -> None:
    block = encoder.acknowledgement(version, name, ranges, final=final)
    if block is None:
        assert version is RM10
        assert not ranges
        return
    root, header, _ = new_envelope(SOAP12, WSA_2005, "urn:a")
    header.append(block)
    raw = xml_bytes(root)
    if SHARED.is_dir():
        assert check_valid(raw) == 1
    (read,) = read_rm(read_envelope(raw)).acknowledgements
    assert (read.ranges, read.final) == (ranges, final and version is RM11)


TEXTS = st.sampled_from(["urn:uuid:1", "a&<>\"'\r\n\t b"]) | st.text(
    st.characters(codec="utf-8", exclude_categories=["C"])
)


@given(VERSIONS, SOAPS, st.none() | st.sampled_from([WSA_2004, WSA_2005]), TEXTS, st.data())
def test_an_acknowledgement_written_as_text_is_the_same(
    version: RmVersion, soap: SoapVersion, wsa: WsaVersion | None, text: str, data: st.DataObject
) -> None:
    state = SequencerState(
        next_number=1,
        received=Ranges.of(*data.draw(PAIRS)),
        cancelled=Ranges.of(*data.draw(st.just([]) | PAIRS)),
        phase=data.draw(st.sampled_from(SequencePhase)),
    )
    claims = Claims(state, SequencerSettings())
    addressing = Addressing(version=wsa or WSA_2005, stated=wsa is not None, message_id=text)
    exchange = Exchange(soap, addressing, version)
    blocks = acknowledgements(version, text, claims)
    plain = exchange.response(version.action("SequenceAcknowledgement"), blocks)
    written = acknowledged_response(exchange, [AcknowledgedSequence(text, claims, cancels=False)])
    assert written == (plain if blocks else None)


@settings(max_examples=300)
@given(VERSIONS, st.data())
def test_what_is_damaged_is_a_fault(version: RmVersion, data: st.DataObject) -> None:
    root, header, _ = new_envelope(SOAP12, WSA_2005, "urn:a")
    header.append(encoder.sequence(version, "urn:uuid:1", 7, last=True))
    header.append(encoder.cancel(version, "urn:uuid:1", [(1, 3)]))
    for block in header.iter():
        action = data.draw(st.sampled_from(["keep"] * 6 + ["text", "drop", "rename", "attribute"]))
        if action == "text":
            block.text = data.draw(st.text(st.characters(codec="ascii", min_codepoint=32)))
        elif action == "drop" and len(block):
            block.remove(block[0])
        elif action == "rename":
            block.tag = etree.QName(version.namespace, "Identifier").text
        elif action == "attribute":
            block.set("Lower", data.draw(st.sampled_from(["", "-1", "x", str(2**64), "5"])))
    with contextlib.suppress(SoapFaultError):
        read_rm(read_envelope(xml_bytes(root)))


@given(st.binary(max_size=300))
def test_any_bytes_are_an_envelope_or_a_fault(raw: bytes) -> None:
    with contextlib.suppress(SoapFaultError):
        read_rm(read_envelope(raw))

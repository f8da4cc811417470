"""Composes what a destination sends: responses, and acknowledgements on their own."""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from itertools import islice
from typing import Final

import msgspec
from lxml.etree import _Element

from instep.sequencing.claims import Claims
from instep.sequencing.effects import Pairs
from instep_soap import (
    Addressing,
    EndpointReference,
    SoapVersion,
    WsaVersion,
    header_envelope,
    new_envelope,
    xml_bytes,
)
from instep_wsrm.sequences import SequenceAttributes
from instep_wsrm.wire import encoder
from instep_wsrm.wire.names import RmVersion

__all__ = [
    "AcknowledgedSequence",
    "Exchange",
    "acknowledged_response",
    "acknowledgements",
    "nacks_envelope",
    "standalone_acknowledgement",
]

_MAX_NACKS: Final = 256


class Exchange(msgspec.Struct, frozen=True, gc=False):
    """How the response to a request is written."""

    soap: SoapVersion
    addressing: Addressing
    """Of the request."""
    version: RmVersion
    identity: str = ""
    """The name in the certificate of the sender; empty where none is asked for."""

    @property
    def wsa(self) -> WsaVersion:
        """The version of WS-Addressing to answer in (WS-RM 3.3): the one of the request, else the
        specification's own.
        """
        addressing = self.addressing
        return addressing.version if addressing.stated else self.version.addressing

    @property
    def reply_to(self) -> EndpointReference | None:
        """Where the response goes; None: into the response of the HTTP request."""
        found = self.addressing.reply_to
        return None if found is None or found.anonymous else found

    def response(
        self,
        action: str,
        headers: Iterable[_Element],
        body: _Element | None = None,
        content: _Element | None = None,
    ) -> bytes:
        """The envelope of the response, with a body of the protocol or of the application."""
        root, header, inside = new_envelope(
            self.soap,
            self.wsa,
            action,
            prefixes={"r": self.version.namespace},
            relates_to=self.addressing.message_id,
            to=self.reply_to,
        )
        header.extend(headers)
        if body is not None:
            inside.append(body)
        return xml_bytes(root, content, to=self.reply_to)


class AcknowledgedSequence(msgspec.Struct, frozen=True, gc=False):
    """What the response says about one sequence."""

    identifier: str
    claims: Claims
    cancels: bool
    """Whether the request asked to cancel some numbers."""

    def blocks(self, version: RmVersion) -> list[_Element]:
        """The header blocks."""
        return acknowledgements(version, self.identifier, self.claims, cancels=self.cancels)


def acknowledged_response(exchange: Exchange, claimed: list[AcknowledgedSequence]) -> bytes | None:
    """The response that only acknowledges; None: there is nothing to say. Its blocks go piggy-back
    on any other response (WS-RM 3.2).

    One acknowledgement without cancelled numbers, as nearly all are, is written as text, with the
    bytes that `Exchange.response` would give.
    """
    version = exchange.version
    action = version.action("SequenceAcknowledgement")
    if len(claimed) == 1 and exchange.reply_to is None:
        one = claimed[0]
        state = one.claims.state
        if not (one.cancels or state.cancelled):
            ranges = one.claims.acknowledged().pairs()
            block = encoder.acknowledgement_text(
                version, one.identifier, ranges, final=one.claims.final
            )
            if not block:
                return None
            return header_envelope(
                exchange.soap,
                exchange.wsa,
                block,
                prefix="r",
                namespace=version.namespace,
                action=action,
                relates_to=exchange.addressing.message_id,
            )
    blocks = [block for one in claimed for block in one.blocks(version)]
    return exchange.response(action, blocks) if blocks else None


def acknowledgements(
    version: RmVersion, identifier: str, claims: Claims, *, cancels: bool = False
) -> list[_Element]:
    """SequenceAcknowledgement (WS-RM 3.9), and SequenceCancelAcknowledgement (proposal 3) where
    numbers are cancelled or `cancels`: the request asked to cancel some. Their ranges never overlap
    (S5).
    """
    blocks = []
    received = encoder.acknowledgement(
        version, identifier, claims.acknowledged().pairs(), final=claims.final
    )
    if received is not None:
        blocks.append(received)
    cancelled = list(claims.cancelled().pairs())
    if cancelled or cancels:
        blocks.append(encoder.cancel_acknowledgement(version, identifier, cancelled))
    return blocks


def standalone_acknowledgement(
    identifier: str, attributes: SequenceAttributes, claims: Claims
) -> tuple[bytes, str] | None:
    """An envelope of its own to AcksTo, with its Action; None: there is nothing to acknowledge."""
    blocks = acknowledgements(attributes.version, identifier, claims)
    return _to_acks(attributes, blocks) if blocks else None


def nacks_envelope(
    identifier: str, attributes: SequenceAttributes, missing: Pairs
) -> tuple[bytes, str]:
    """An envelope to AcksTo that asks for the lowest of the missing numbers."""
    numbers = (number for low, high in missing for number in range(low, high + 1))
    block = encoder.nacks(attributes.version, identifier, list(islice(numbers, _MAX_NACKS)))
    return _to_acks(attributes, [block])


def _to_acks(attributes: SequenceAttributes, blocks: list[_Element]) -> tuple[bytes, str]:
    action, endpoint = (
        attributes.version.action("SequenceAcknowledgement"),
        attributes.acks_endpoint(),
    )
    root, header, _ = new_envelope(
        attributes.soap_version,
        endpoint.version,
        action,
        prefixes={"r": attributes.rm},
        message_id=uuid.uuid4().urn,
        to=endpoint,
    )
    header.extend(blocks)
    return xml_bytes(root, to=endpoint), action

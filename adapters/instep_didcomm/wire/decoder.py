"""Decodes the bytes of one transmission to a message for the sequencer: unpacks and checks it, and
sets its scope and number.

Advanced Sequencing: a message is identified by `thid`, sender and `sender_order`; here thread and
sender are the scope, `sender_order` is the number.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from instep.model.messages import UNSEQUENCED, Message
from instep.sequencing.settings import SequencerSettings
from instep_didcomm.problems import MessageRefusedError, Reason
from instep_didcomm.wire.envelope import Form, form_of, media_form, parse_object
from instep_didcomm.wire.headers import EMPTY_MESSAGE_TYPE, Headers, digest_of, read_headers
from instep_didcomm.wire.protocols import Protocols, message_scope, sequence_scope
from instep_didcomm.wire.unpack import Unpacked, Unpacker

__all__ = ["Attributes", "Incoming", "MessageDecoder"]

_US = 1_000_000


class Attributes(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """The attributes stored with a message (`Message.attributes`)."""

    type: str
    thid: str
    pthid: str = ""
    form: Form
    """The form of the envelope."""
    authenticated: bool
    """Whether a key of the sender's DID proves the sender."""
    certificate: str = ""
    """The name in the certificate that the message came with; empty where none is asked for."""
    sent_count: int = 1
    created_time_s: int = 0


class Incoming(msgspec.Struct, frozen=True, gc=False):
    """One decoded transmission."""

    headers: Headers
    message: Message | None
    """None for an empty message, which has headers only."""
    deviations: list[str]
    settings: SequencerSettings | None = None
    """The policies that the protocol of the message declares for its sequence."""
    counts_in: str = ""
    """The scope in which `sender_order` counts although the message is not delivered by it: it is
    empty, or of a protocol that is not sequenced. Empty: none."""


class MessageDecoder:
    """Decodes transmissions.

    Args:
        ours: Our DIDs; empty if we have none.
        now: The clock, in seconds since 1970 UTC.
        prove_sender: Whether a message whose sender is not proven is refused.
        max_age_s: The oldest unsequenced message that is accepted, by its `created_time`.
    """

    def __init__(
        self,
        unpacker: Unpacker,
        protocols: Protocols,
        ours: frozenset[str],
        now: Callable[[], float],
        *,
        prove_sender: bool,
        max_age_s: float | None = None,
    ) -> None:
        self._unpacker = unpacker
        self._protocols = protocols
        self._ours = ours
        self._now = now
        self._prove_sender = prove_sender
        self._max_age_s = max_age_s

    async def decode(self, raw: bytes, content_type: str = "", certificate: str = "") -> Incoming:
        """Decode one transmission. Raises `MessageRefusedError` with the reason.

        Args:
            raw: The transmission.
            content_type: As its sender states it.
            certificate: The name in the certificate that it came with; empty: there is none.
        """
        stated = media_form(content_type)
        return self._decode(await self._unpacker.unpack(raw), stated, certificate)

    def decode_now(self, raw: bytes, content_type: str = "", certificate: str = "") -> Incoming:
        """`decode` without a loop, for a thread: nothing of it waits for anything. Raises
        `MessageRefusedError`.
        """
        decoding = self.decode(raw, content_type, certificate)
        try:
            decoding.send(None)
        except StopIteration as done:
            incoming: Incoming = done.value
            return incoming
        decoding.close()
        raise RuntimeError("a message was waited for while it was decoded")

    def decode_plain(
        self, raw: bytes, content_type: str = "", certificate: str = ""
    ) -> Incoming | None:
        """Decode a plaintext without waiting; None for an envelope."""
        stated, message = media_form(content_type), parse_object(raw)
        if form_of(message) is not Form.PLAIN:
            return None
        plain = Unpacked(raw=raw, message=message, form=Form.PLAIN)
        return self._decode(plain, stated, certificate)

    def _decode(self, unpacked: Unpacked, stated: Form | None, certificate: str) -> Incoming:
        deviations: list[str] = []
        headers = read_headers(unpacked.message, deviations.append)
        if stated not in (None, unpacked.form):
            deviations.append("media-type")
        if headers.to and self._ours and self._ours.isdisjoint(headers.to):
            deviations.append("not-addressed")
        if self._prove_sender and headers.sender and not unpacked.authors:
            raise MessageRefusedError(
                Reason.UNAUTHENTICATED,
                f"{headers.sender[:120]} is claimed by a {unpacked.form!s} message and not proven:"
                " authcrypt or sign it",
            )
        # "The number of messages the sender has sent in the thread": all of them count.
        numbered = headers.sender_order and headers.sender
        counts_in = ""
        if numbered:
            unproven = "" if unpacked.authors else certificate
            counts_in = sequence_scope(headers.thid, headers.sender, unproven)
        if headers.type == EMPTY_MESSAGE_TYPE:
            return Incoming(headers, None, deviations, None, counts_in)
        protocol = self._protocols.find(headers.type)
        message = self._message(
            headers, unpacked, counts_in, certificate, sequenced=protocol.sequenced
        )
        if protocol.sequenced:
            return Incoming(headers, message, deviations, protocol.sequence)
        return Incoming(headers, message, deviations, None, counts_in)

    def _message(
        self,
        headers: Headers,
        unpacked: Unpacked,
        counts_in: str,
        certificate: str,
        *,
        sequenced: bool,
    ) -> Message:
        now_us = int(self._now() * _US)
        expires_at_us = headers.expires_time_s * _US
        if sequenced:
            if not headers.sender:
                raise MessageRefusedError(
                    Reason.NO_SENDER, f"{headers.type} has an order, which an anonymous one lacks"
                )
            if not headers.sender_order:
                raise MessageRefusedError(
                    Reason.NO_ORDER, f"{headers.type} is declared as sequenced: sender_order lacks"
                )
            scope, number = counts_in, headers.sender_order
        else:
            # No other message depends on an unsequenced one, so only its sender must learn that it
            # expired.
            if 0 < expires_at_us <= now_us:
                raise MessageRefusedError(Reason.EXPIRED, "expires_time has passed")
            if self._max_age_s is not None:
                _check_age(headers.created_time_s, self._now(), self._max_age_s)
            unproven = "" if unpacked.authors else certificate
            scope, number = message_scope(headers.sender, unproven), UNSEQUENCED
        attributes = Attributes(
            type=headers.type,
            thid=headers.thid,
            pthid=headers.pthid,
            form=unpacked.form,
            authenticated=bool(unpacked.authors),
            certificate=certificate,
            sent_count=headers.sent_count,
            created_time_s=headers.created_time_s,
        )
        return Message(
            scope=scope,
            number=number,
            id=headers.id,
            body=unpacked.raw,
            received_at_us=now_us,
            expires_at_us=expires_at_us,
            digest=digest_of(unpacked.message),
            sender=headers.sender,
            attributes=msgspec.json.encode(attributes),
        )


def _check_age(created_time_s: int, now_s: float, max_age_s: float) -> None:
    if not created_time_s:
        raise MessageRefusedError(
            Reason.EXPIRED, "no created_time: this receiver refuses messages of unknown age"
        )
    if now_s - created_time_s > max_age_s:
        raise MessageRefusedError(
            Reason.EXPIRED, f"created_time is more than {max_age_s:g} s ago: send it anew"
        )

"""Reads what a provider answers to a subscriber, and the end that it announces (WS-Eventing)."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final

import msgspec
from lxml.etree import _Element

from instep_sdpi.wire.names import wse_name
from instep_soap import (
    EndpointReference,
    Envelope,
    SoapFaultError,
    XmlError,
    local_name,
    read_duration_s,
    read_reference,
)

__all__ = ["GrantedSubscription", "SubscriptionEnd", "read_end", "read_granted", "read_subscribed"]

_MAX_REASON_CHARS: Final = 200


class GrantedSubscription(msgspec.Struct, frozen=True):
    """A subscription, as its provider grants it."""

    manager: EndpointReference
    """Where it is renewed, asked about and ended."""
    expires_s: float
    """How long it lasts from now; inf where the provider states no end."""


class SubscriptionEnd(msgspec.Struct, frozen=True):
    """The provider ends the subscription."""

    status: str
    """``SourceShuttingDown``, ``SourceCancelling`` or ``DeliveryFailure``, with or without the
    namespace before it; as stated.
    """
    reason: str = ""

    def __str__(self) -> str:
        stated = self.status.rpartition("/")[2] or "no status"
        return f"{stated}: {self.reason}" if self.reason else stated


def read_subscribed(envelope: Envelope, now_s: float) -> GrantedSubscription:
    """A SubscribeResponse. `now_s`: seconds since 1970, for an end that is a date.

    Raises `XmlError`: it is none, or it names no subscription manager.
    """
    response = _body(envelope, "SubscribeResponse")
    manager = response.find(wse_name("SubscriptionManager"))
    if manager is None:
        raise XmlError("SubscribeResponse has no SubscriptionManager")
    try:
        reference = read_reference(manager)
    except SoapFaultError as fault:
        raise XmlError(fault.message) from None
    if not reference.address:
        raise XmlError("the SubscriptionManager has no address")
    return GrantedSubscription(reference, _expires_s(response, now_s))


def read_granted(envelope: Envelope, local: str, now_s: float) -> float:
    """Seconds that a RenewResponse or GetStatusResponse (`local`) grants from now on.

    Raises `XmlError`: it is no such response.
    """
    return _expires_s(_body(envelope, local), now_s)


def read_end(envelope: Envelope) -> SubscriptionEnd | None:
    """A SubscriptionEnd; None: the envelope is none."""
    if not envelope.body or envelope.body[0].tag != wse_name("SubscriptionEnd"):
        return None
    end = envelope.body[0]
    status, reason = end.findtext(wse_name("Status")), end.findtext(wse_name("Reason"))
    return SubscriptionEnd(
        (status or "").strip()[:_MAX_REASON_CHARS], (reason or "").strip()[:_MAX_REASON_CHARS]
    )


def _expires_s(element: _Element, now_s: float) -> float:
    text = (element.findtext(wse_name("Expires")) or "").strip()
    if not text:
        return float("inf")
    seconds = read_duration_s(text)
    if seconds is None:
        seconds = _until_s(text, now_s)
    if seconds is None:
        raise XmlError(f"Expires {text[:40]!r} is no duration and no time")
    return seconds


def _until_s(text: str, now_s: float) -> float | None:
    """An xsd:dateTime, as seconds from now; without a zone it is UTC."""
    try:
        until = datetime.fromisoformat(text)
    except ValueError:
        return None
    if until.tzinfo is None:
        until = until.replace(tzinfo=UTC)
    return max(0.0, until.timestamp() - now_s)


def _body(envelope: Envelope, local: str) -> _Element:
    if not envelope.body or envelope.body[0].tag != wse_name(local):
        found = local_name(str(envelope.body[0].tag)) if envelope.body else "empty"
        raise XmlError(f"the response is no {local}: {found[:80]}")
    return envelope.body[0]

"""Writes the requests of a consumer: WS-Transfer Get, the Get service, and WS-Eventing."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from lxml.etree import Element, SubElement, _Element

from instep_sdpi.wire.names import (
    ACTION_DIALECT,
    GET_CONTEXT_STATES,
    GET_MDIB,
    MESSAGE,
    TRANSFER_GET,
    WSE,
    message_name,
    wse_name,
)
from instep_soap import (
    SOAP12,
    WSA_2005,
    EndpointReference,
    new_envelope,
    write_duration,
    write_reference,
    xml_bytes,
)

__all__ = [
    "SOAP_REQUESTS",
    "get_context_states",
    "get_mdib",
    "get_metadata",
    "get_status",
    "renew",
    "subscribe",
    "unsubscribe",
]

SOAP_REQUESTS: Final = SOAP12
"""The version of SOAP that SDC is bound to (IEEE 11073-20702)."""
_PUSH: Final = f"{WSE}/DeliveryModes/Push"
_MSG: Final = {"msg": MESSAGE}
_WSE: Final = {"wse": WSE}

Request = tuple[str, bytes]
"""The action and the envelope."""


def get_metadata(to: EndpointReference, message_id: str) -> Request:
    """WS-Transfer Get: what the device is, and which services it hosts (DPWS 1.1, 5.1)."""
    return _request(TRANSFER_GET, to, message_id)


def get_mdib(to: EndpointReference, message_id: str) -> Request:
    """The whole MDIB."""
    return _request(GET_MDIB, to, message_id, Element(message_name("GetMdib"), nsmap=_MSG))


def get_context_states(to: EndpointReference, message_id: str) -> Request:
    """All context states: no HandleRef means all of them."""
    element = Element(message_name("GetContextStates"), nsmap=_MSG)
    return _request(GET_CONTEXT_STATES, to, message_id, element)


def subscribe(
    to: EndpointReference,
    message_id: str,
    *,
    notify_to: EndpointReference,
    end_to: EndpointReference,
    actions: Iterable[str],
    expires_s: float,
) -> Request:
    """A subscription for reports with these actions, by push (WS-Eventing 2004/08, 3.1)."""
    element = Element(wse_name("Subscribe"), nsmap=_WSE)
    write_reference(element, wse_name("EndTo"), end_to)
    delivery = SubElement(element, wse_name("Delivery"), {"Mode": _PUSH})
    write_reference(delivery, wse_name("NotifyTo"), notify_to)
    SubElement(element, wse_name("Expires")).text = write_duration(expires_s)
    wanted = SubElement(element, wse_name("Filter"), {"Dialect": ACTION_DIALECT})
    wanted.text = " ".join(actions)
    return _request(f"{WSE}/Subscribe", to, message_id, element)


def renew(manager: EndpointReference, message_id: str, expires_s: float) -> Request:
    """Ask for more time (WS-Eventing 2004/08, 3.2)."""
    element = Element(wse_name("Renew"), nsmap=_WSE)
    SubElement(element, wse_name("Expires")).text = write_duration(expires_s)
    return _request(f"{WSE}/Renew", manager, message_id, element)


def get_status(manager: EndpointReference, message_id: str) -> Request:
    """Ask whether the subscription is still there (WS-Eventing 2004/08, 3.3)."""
    element = Element(wse_name("GetStatus"), nsmap=_WSE)
    return _request(f"{WSE}/GetStatus", manager, message_id, element)


def unsubscribe(manager: EndpointReference, message_id: str) -> Request:
    """End the subscription (WS-Eventing 2004/08, 3.4)."""
    element = Element(wse_name("Unsubscribe"), nsmap=_WSE)
    return _request(f"{WSE}/Unsubscribe", manager, message_id, element)


def _request(
    action: str, to: EndpointReference, message_id: str, content: _Element | None = None
) -> Request:
    root, _, body = new_envelope(
        SOAP_REQUESTS, WSA_2005, action, prefixes={**_MSG, **_WSE}, message_id=message_id, to=to
    )
    if content is not None:
        body.append(content)
    return action, xml_bytes(root, to=to)

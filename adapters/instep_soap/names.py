"""The versions of SOAP and of WS-Addressing: their namespaces, and what differs with them."""

from __future__ import annotations

from typing import Final

import msgspec

__all__ = [
    "ANY_SOAP",
    "ANY_WSA",
    "SOAP11",
    "SOAP12",
    "WSA_2004",
    "WSA_2005",
    "SoapVersion",
    "WsaVersion",
    "local_name",
    "namespace_of",
]


class SoapVersion(msgspec.Struct, frozen=True):
    """A version of SOAP."""

    namespace: str
    media_type: str
    sender: str
    """The local name of the fault code of a mistake of the sender …"""
    receiver: str
    """… and of the receiver."""
    role: str
    """The attribute that names whom a header block is for …"""
    for_us: frozenset[str]
    """… and its values that mean the receiver of the message."""

    def name(self, local: str) -> str:
        """The name of an element of the envelope, as lxml writes it."""
        return f"{{{self.namespace}}}{local}"


class WsaVersion(msgspec.Struct, frozen=True):
    """A version of WS-Addressing."""

    namespace: str
    anonymous: str
    """The address that means the response of the same exchange."""
    none: str
    """The address that means nowhere; empty in a version without one."""

    @property
    def fault_action(self) -> str:
        """The Action of a fault that has no other."""
        return f"{self.namespace}/fault"

    def name(self, local: str) -> str:
        """The name of one of its elements, as lxml writes it."""
        return f"{{{self.namespace}}}{local}"


_11: Final = "http://schemas.xmlsoap.org/soap/envelope/"
_12: Final = "http://www.w3.org/2003/05/soap-envelope"
_2004: Final = "http://schemas.xmlsoap.org/ws/2004/08/addressing"
_2005: Final = "http://www.w3.org/2005/08/addressing"

SOAP11: Final = SoapVersion(
    _11,
    "text/xml",
    "Client",
    "Server",
    f"{{{_11}}}actor",
    frozenset({"", "http://schemas.xmlsoap.org/soap/actor/next"}),
)
SOAP12: Final = SoapVersion(
    _12,
    "application/soap+xml",
    "Sender",
    "Receiver",
    f"{{{_12}}}role",
    frozenset({"", f"{_12}/role/next", f"{_12}/role/ultimateReceiver"}),
)
WSA_2004: Final = WsaVersion(_2004, f"{_2004}/role/anonymous", "")
WSA_2005: Final = WsaVersion(_2005, f"{_2005}/anonymous", f"{_2005}/none")

ANY_SOAP: Final = {version.namespace: version for version in (SOAP12, SOAP11)}
ANY_WSA: Final = {version.namespace: version for version in (WSA_2005, WSA_2004)}


def namespace_of(name: str) -> str:
    """The namespace of a name that lxml wrote, ``{namespace}local``; empty if it has none."""
    return name[1:].partition("}")[0] if name.startswith("{") else ""


def local_name(name: str) -> str:
    """The local part of a name that lxml wrote."""
    return name.rpartition("}")[2]

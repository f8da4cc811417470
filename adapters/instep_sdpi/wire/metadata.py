"""Reads the metadata of a device: its name, and the services that it hosts (DPWS 1.1, 4)."""

from __future__ import annotations

import msgspec

from instep_sdpi.wire.names import DPWS, METADATA
from instep_soap import EndpointReference, Envelope, XmlError, read_reference

__all__ = ["Device", "HostedService", "read_metadata"]


class HostedService(msgspec.Struct, frozen=True):
    """A service of a device."""

    service_id: str
    endpoints: list[EndpointReference]
    types: frozenset[str]
    """The local names of its port types."""


class Device(msgspec.Struct, frozen=True):
    """A device and its services."""

    epr: str
    """Its name, which stays when its address changes; empty where it states none."""
    hosted: list[HostedService]

    def serving(self, port_type: str) -> HostedService | None:
        """The service with this port type; None: the device hosts none."""
        return next((one for one in self.hosted if port_type in one.types), None)


def read_metadata(envelope: Envelope) -> Device:
    """The device of a WS-Transfer GetResponse. Raises `XmlError`: it is none."""
    if not envelope.body or envelope.body[0].tag != f"{{{METADATA}}}Metadata":
        raise XmlError("the response is no Metadata")
    epr, hosted = "", list[HostedService]()
    for element in envelope.body[0].iter(f"{{{DPWS}}}Host", f"{{{DPWS}}}Hosted"):
        references = [
            read_reference(one)
            for one in element.iterchildren(
                "{http://www.w3.org/2005/08/addressing}EndpointReference"
            )
        ]
        if element.tag == f"{{{DPWS}}}Host":
            epr = epr or next((one.address for one in references), "")
            continue
        types = (element.findtext(f"{{{DPWS}}}Types") or "").split()
        service_id = (element.findtext(f"{{{DPWS}}}ServiceId") or "").strip()
        if references:
            local = frozenset(name.rpartition(":")[2] for name in types)
            hosted.append(HostedService(service_id, references, local))
    return Device(epr, hosted)

"""Reads the MDIB, and the context states, from the response that has them."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
from lxml.etree import _Element

from instep_sdpi.wire.entities import (
    Entity,
    MdibVersion,
    UnreadableEntity,
    read_descriptors,
    read_mdib_version,
    read_state,
)
from instep_sdpi.wire.names import message_name, participant_name
from instep_soap import Envelope, XmlError

__all__ = ["Mdib", "read_context_states", "read_mdib"]


class Mdib(msgspec.Struct, frozen=True):
    """The entities of one version of the MDIB, read as they are asked for."""

    version: MdibVersion
    descriptors: list[_Element]
    states: list[_Element]

    def entities(self) -> Iterator[Entity | UnreadableEntity]:
        """Every descriptor, a parent before its children; then every state."""
        for element in self.descriptors:
            yield from read_descriptors(element)
        for element in self.states:
            yield read_state(element)


def read_mdib(envelope: Envelope) -> Mdib:
    """The MDIB of a GetMdibResponse. Raises `XmlError`: it is none."""
    response = _body(envelope, "GetMdibResponse")
    mdib = response.find(message_name("Mdib"))
    if mdib is None:
        raise XmlError("GetMdibResponse has no Mdib")
    version = read_mdib_version(response)
    description = mdib.find(participant_name("MdDescription"))
    states = mdib.find(participant_name("MdState"))
    return Mdib(
        version,
        [] if description is None else list(description.iterchildren(participant_name("Mds"))),
        [] if states is None else list(states.iterchildren(participant_name("State"))),
    )


def read_context_states(envelope: Envelope) -> Mdib:
    """The states of a GetContextStatesResponse. Raises `XmlError`: it is none."""
    response = _body(envelope, "GetContextStatesResponse")
    states = list(response.iterchildren(message_name("ContextState")))
    return Mdib(read_mdib_version(response), [], states)


def _body(envelope: Envelope, local: str) -> _Element:
    if not envelope.body or envelope.body[0].tag != message_name(local):
        raise XmlError(f"the response is no {local}")
    return envelope.body[0]

"""Reads the MDIB, and the context states, from the response that has them."""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum
from itertools import islice
from typing import Final

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

__all__ = ["Mdib", "MdibPage", "MdibRequest", "read_context_states", "read_mdib", "read_pages"]

_PAGE_ENTITIES: Final = 1_000


class MdibRequest(StrEnum):
    """The requests whose responses have entities."""

    GET_MDIB = "GetMdib"
    GET_CONTEXT_STATES = "GetContextStates"


class MdibPage(msgspec.Struct, frozen=True):
    """Some of the entities of one version of the MDIB."""

    version: MdibVersion
    entities: list[Entity]
    unreadable: list[UnreadableEntity] = []


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

    def pages(self) -> Iterator[MdibPage]:
        """All entities in pages, in their order; one page at least."""
        found = self.entities()
        some = list(islice(found, _PAGE_ENTITIES))
        while True:
            entities = [one for one in some if isinstance(one, Entity)]
            unreadable = [one for one in some if isinstance(one, UnreadableEntity)]
            yield MdibPage(self.version, entities, unreadable)
            some = list(islice(found, _PAGE_ENTITIES))
            if not some:
                return


def read_pages(envelope: Envelope, request: MdibRequest) -> Iterator[MdibPage]:
    """The entities of a response. Raises `XmlError`: it is not one to this request."""
    read = read_mdib if request is MdibRequest.GET_MDIB else read_context_states
    return read(envelope).pages()


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

"""Entities of the MDIB: descriptors and states, each with its handle, its class and its body."""

from __future__ import annotations

import re
from collections.abc import Container, Iterator
from typing import Final, NoReturn

import msgspec
from lxml.etree import _Element

from instep_sdpi.wire.body import body_of, canonical_xml, type_of
from instep_sdpi.wire.names import PARTICIPANT, MdibPart
from instep_soap import XmlError, local_name, namespace_of

__all__ = [
    "MAX_HANDLE_CHARS",
    "Entity",
    "MdibVersion",
    "UnreadableEntity",
    "descriptor_key",
    "read_descriptors",
    "read_mdib_version",
    "read_state",
    "state_key",
]

# fmt: off
_CONTAINED: Final = frozenset({
    "AlertCondition", "AlertSignal", "AlertSystem", "Battery", "Channel", "Clock",
    "EnsembleContext", "LocationContext", "Mds", "MeansContext", "Metric", "Operation",
    "OperatorContext", "PatientContext", "Sco", "SystemContext", "Vmd", "WorkflowContext",
})
# fmt: on
_ABSTRACT: Final = frozenset({"Descriptor", "Metric", "Operation", "State"})
"""Elements of an abstract type: they must state an xsi:type."""
_UNSIGNED: Final = re.compile(r"[ \t\r\n]*\+?([0-9]{1,20})[ \t\r\n]*", re.ASCII)
_MAX_UNSIGNED_LONG: Final = (1 << 64) - 1
MAX_HANDLE_CHARS: Final = 1_024


class MdibVersion(msgspec.Struct, frozen=True):
    """A state of the MDIB. Versions compare within one sequence and instance only (IEEE
    11073-10207, `MdibVersionGroup`).
    """

    sequence_id: str
    instance_id: int | None
    """None where the provider states none."""
    version: int

    @property
    def counted_in(self) -> tuple[str, int | None]:
        """Within what the version counts."""
        return self.sequence_id, self.instance_id


class Entity(msgspec.Struct, frozen=True, gc=False):
    """A descriptor or a state, as stated."""

    key: str
    part: MdibPart
    entity_class: str
    body: bytes
    """One JSON object: see `instep_sdpi.wire.body`."""
    descriptor: str
    """The handle of the descriptor: its own, or the one that the state belongs to."""
    parent: str = ""
    """The handle of the descriptor that contains this one; empty for an Mds, and for a state."""
    source_mds: str = ""
    """The handle of the Mds, where it is known."""
    ends: bool = False
    """Whether the descriptor has ended, with all that it contains and with the states of it."""


class UnreadableEntity(msgspec.Struct, frozen=True, gc=False):
    """An element that is no descriptor and no state, though it stands where one belongs."""

    raw: bytes
    reason: str


def descriptor_key(handle: str) -> str:
    """The key of the descriptor with this handle."""
    return f"descriptor/{handle}"


def state_key(handle: str) -> str:
    """The key of a state: by its own handle (contexts), else by the handle of its descriptor."""
    return f"state/{handle}"


def read_mdib_version(element: _Element) -> MdibVersion:
    """`MdibVersion` (0 if it is not stated), `SequenceId` and `InstanceId` of a report or response.

    Raises `XmlError`: no SequenceId, or a version that is no number.
    """
    sequence_id = (element.get("SequenceId") or "").strip()
    if not sequence_id or len(sequence_id) > MAX_HANDLE_CHARS:
        raise XmlError(f"{local_name(str(element.tag))} has no SequenceId, or one that is too long")
    version = _unsigned(element, "MdibVersion")
    return MdibVersion(sequence_id, _unsigned(element, "InstanceId"), version or 0)


def read_descriptors(
    element: _Element, *, parent: str = "", source_mds: str = ""
) -> Iterator[Entity | UnreadableEntity]:
    """A descriptor, and all that it contains, each on its own."""
    try:
        entity_class = type_of(element) or _descriptor_class(element)
        handle = _handle(element, "Handle")
    except XmlError as error:
        yield UnreadableEntity(canonical_xml(element), error.message)
        return
    source_mds = handle if entity_class == "MdsDescriptor" else source_mds
    yield Entity(
        key=descriptor_key(handle),
        part=MdibPart.DESCRIPTION,
        entity_class=entity_class,
        body=body_of(element, _is_contained),
        descriptor=handle,
        parent=parent,
        source_mds=source_mds,
    )
    for child in element:
        if _is_contained(child):
            yield from read_descriptors(child, parent=handle, source_mds=source_mds)


def read_state(
    element: _Element,
    *,
    source_mds: str = "",
    default_class: str = "",
    declared: Container[str | None] = (),
) -> Entity | UnreadableEntity:
    """A state. `default_class`: what it is without an xsi:type, where its element allows that;
    `declared`: see `type_of`.
    """
    try:
        entity_class = type_of(element, declared) or default_class or _untyped(element)
        descriptor = _handle(element, "DescriptorHandle")
        part = _part_of(entity_class)
        own = _handle(element, "Handle") if part is MdibPart.CONTEXT else descriptor
    except XmlError as error:
        return UnreadableEntity(canonical_xml(element), error.message)
    return Entity(
        key=state_key(own),
        part=part,
        entity_class=entity_class,
        body=body_of(element, _never),
        descriptor=descriptor,
        source_mds=source_mds,
    )


def _part_of(state_class: str) -> MdibPart:
    """The part of a state. A class that BICEPS does not know belongs where its name says."""
    if state_class == "RealTimeSampleArrayMetricState":
        return MdibPart.WAVEFORM
    if state_class.endswith("MetricState"):
        return MdibPart.METRIC
    if state_class.endswith("OperationState"):
        return MdibPart.OPERATION
    if state_class.endswith("ContextState") and state_class != "SystemContextState":
        return MdibPart.CONTEXT
    if "Alert" in state_class:
        return MdibPart.ALERT
    return MdibPart.COMPONENT


def _descriptor_class(element: _Element) -> str:
    name = local_name(str(element.tag))
    return _untyped(element) if name in _ABSTRACT else f"{name}Descriptor"


def _untyped(element: _Element) -> NoReturn:
    raise XmlError(f"{local_name(str(element.tag))} has no xsi:type")


def _handle(element: _Element, name: str) -> str:
    handle = element.get(name) or ""
    if not handle.strip() or len(handle) > MAX_HANDLE_CHARS:
        what = "no" if not handle.strip() else f"more than {MAX_HANDLE_CHARS} letters in its"
        raise XmlError(f"{local_name(str(element.tag))} has {what} {name}")
    return handle


def _unsigned(element: _Element, name: str) -> int | None:
    text = element.get(name)
    if text is None:
        return None
    number = _UNSIGNED.fullmatch(text)
    if number is None or int(number[1]) > _MAX_UNSIGNED_LONG:
        raise XmlError(f"{name} {text[:40]!r} is no number")
    return int(number[1])


def _is_contained(element: _Element) -> bool:
    name = str(element.tag)
    return namespace_of(name) == PARTICIPANT and local_name(name) in _CONTAINED


def _never(_element: _Element) -> bool:
    return False

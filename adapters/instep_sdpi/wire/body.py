"""An element of the MDIB as JSON: what a store keeps of an entity.

Attributes and children become members under their local names, as text, as the provider wrote it. A
child that BICEPS lets repeat is always an array, any other one only where it is there more than
once. An element with nothing but text is that text; beside other members its text is `#text`. What
BICEPS does not define (the content of an Extension) stays XML, in its canonical form, under its
qualified name.
"""

from __future__ import annotations

from collections.abc import Callable, Container
from functools import lru_cache
from typing import Any, Final

import msgspec
from lxml import etree
from lxml.etree import _Element

from instep_sdpi.wire.names import MESSAGE, PARTICIPANT, XSI_TYPE
from instep_soap import XmlError, local_name, namespace_of

__all__ = ["REPEATED", "body_of", "canonical_xml", "type_of"]

# fmt: off
REPEATED: Final = frozenset({
    "AlertCondition", "AlertSignal", "AllowedRange", "AllowedValue", "Annotation",
    "ApplyAnnotation", "ApprovedJurisdiction", "Argument", "Battery", "BodySite",
    "CalibrationDocumentation", "CalibrationResult", "CauseInfo", "Channel",
    "CodingSystemName", "ConceptDescription", "DangerCode", "Description",
    "Documentation", "EnsembleContext", "Entry", "Identification", "IdentifierName",
    "ImagingProcedure", "Label", "Manufacturer",
    "MeansContext", "Mds", "Metric", "Middlename", "ModelName", "ModifiableData", "Operation",
    "OperationGroup", "OperatorContext", "Performer", "PhysiologicalRange",
    "ProductionSpecification",
    "ReferenceRange", "ReferenceSource", "RelatedMeasurement", "Relation",
    "RelevantClinicalInfo", "ResultingClinicalInfo", "Role", "SerialNumber", "Service", "Source",
    "SystemSignalActivation", "TechnicalRange", "TimeProtocol", "Translation", "Udi",
    "Validator", "Vmd", "WorkflowContext",
})
# fmt: on
"""The elements that BICEPS lets repeat (IEEE 11073-10207, the participant model)."""
_MAX_NAME_CHARS: Final = 200
_SPACES: Final = frozenset({"", PARTICIPANT, MESSAGE})


def body_of(element: _Element, leave_out: Callable[[_Element], bool]) -> bytes:
    """An entity as one JSON object, without its xsi:type, which is the class of the entity.

    `leave_out`: children that are entities of their own.
    """
    return msgspec.json.encode(_members(element, leave_out))


def type_of(element: _Element, declared: Container[str | None] = ()) -> str:
    """The local part of xsi:type; empty where the element has none.

    `declared`: prefixes that are declared around it. lxml makes a dictionary of them for each
    element that it is asked about.

    Raises `XmlError`: it is no qualified name.
    """
    text = (element.get(XSI_TYPE) or "").strip()
    if not text:
        return ""
    prefix, colon, local = text.rpartition(":")
    known = not colon or prefix in declared or prefix in element.nsmap
    if not local or " " in local or len(local) > _MAX_NAME_CHARS or not known:
        raise XmlError(f"xsi:type {text[:80]!r} is no qualified name")
    return local


def canonical_xml(element: _Element) -> bytes:
    """The element in exclusive canonical form: the same content gives the same bytes. One that has
    no such form, because the name of a namespace is relative, as it was written.
    """
    try:
        raw: bytes = etree.tostring(element, method="c14n", exclusive=True, with_tail=False)
    except etree.C14NError:
        raw = etree.tostring(element, with_tail=False)
    return raw


class _Name(msgspec.Struct, frozen=True, gc=False):
    """What the name of an element means for the member that it becomes."""

    member: str
    known: bool
    """Whether BICEPS defines the element."""
    repeats: bool
    holds_values: bool
    """Whether `Value` repeats within it."""


@lru_cache(maxsize=4_096)
def _name(tag: str) -> _Name:
    local = local_name(tag)
    if namespace_of(tag) not in _SPACES:
        return _Name(tag, known=False, repeats=False, holds_values=False)
    return _Name(
        local, known=True, repeats=local in REPEATED, holds_values=local == "AllowedValues"
    )


def _members(
    element: _Element, leave_out: Callable[[_Element], bool] | None = None
) -> dict[str, Any]:
    members: dict[str, Any] = dict(element.items())  # type: ignore[arg-type] # it gives no bytes
    if members.pop(XSI_TYPE, None) is not None and leave_out is None:
        members["xsi:type"] = type_of(element)
    for child in element:
        if leave_out is not None and leave_out(child):
            continue
        name = _name(child.tag)
        value = _value(child) if name.known else canonical_xml(child).decode()
        member = name.member
        before = members.get(member)
        if before is None:
            repeats = name.repeats or (member == "Value" and _name(element.tag).holds_values)
            members[member] = [value] if repeats else value
        elif isinstance(before, list):
            before.append(value)
        else:
            members[member] = [before, value]
    own = element.text
    if own and (own := own.strip()):
        members["#text"] = own
    return members


def _value(element: _Element) -> dict[str, Any] | str:
    if len(element) or element.keys():
        return _members(element)
    return (element.text or "").strip()

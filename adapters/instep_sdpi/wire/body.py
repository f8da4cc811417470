"""An element of the MDIB as JSON: what a store keeps of an entity.

Attributes and children become members under their local names, as text, as the provider wrote it. A
child that BICEPS lets repeat is always an array, any other one only where it is there more than
once. An element with nothing but text is that text; beside other members its text is `#text`. What
BICEPS does not define (the content of an Extension) stays XML, in its canonical form, under its
qualified name.
"""

from __future__ import annotations

from collections.abc import Callable
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
_ALLOWED: Final = ("AllowedValues", "Value")
_MAX_NAME_CHARS: Final = 200
_SPACES: Final = frozenset({"", PARTICIPANT, MESSAGE})


def body_of(element: _Element, leave_out: Callable[[_Element], bool]) -> bytes:
    """An entity as one JSON object, without its xsi:type, which is the class of the entity.

    `leave_out`: children that are entities of their own.
    """
    members = _members(element, leave_out)
    members.pop("xsi:type", None)
    return msgspec.json.encode(members)


def type_of(element: _Element) -> str:
    """The local part of xsi:type; empty where the element has none.

    Raises `XmlError`: it is no qualified name.
    """
    text = (element.get(XSI_TYPE) or "").strip()
    if not text:
        return ""
    prefix, colon, local = text.rpartition(":")
    known = not colon or prefix in element.nsmap
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


def _members(element: _Element, leave_out: Callable[[_Element], bool] | None) -> dict[str, Any]:
    members: dict[str, Any] = {}
    for attribute, text in element.attrib.items():
        members["xsi:type" if attribute == XSI_TYPE else str(attribute)] = str(text)
    if XSI_TYPE in element.attrib:
        members["xsi:type"] = type_of(element)
    parent, _ = _name(str(element.tag))
    for child in element:
        if leave_out is not None and leave_out(child):
            continue
        name, known = _name(str(child.tag))
        value: object = _value(child) if known else canonical_xml(child).decode()
        _add(members, name, value, repeats=name in REPEATED or (parent, name) == _ALLOWED)
    own = (element.text or "").strip()
    if own:
        members["#text"] = own
    return members


@lru_cache(maxsize=4_096)
def _name(tag: str) -> tuple[str, bool]:
    """The name of the member for an element, and whether BICEPS defines the element."""
    known = namespace_of(tag) in _SPACES
    return local_name(tag) if known else tag, known


def _value(element: _Element) -> dict[str, Any] | str:
    if not element.attrib and not len(element):
        return (element.text or "").strip()
    return _members(element, None)


def _add(members: dict[str, Any], name: str, value: object, *, repeats: bool) -> None:
    known = members.get(name)
    if known is None:
        members[name] = [value] if repeats else value
    elif isinstance(known, list):
        known.append(value)
    else:
        members[name] = [known, value]

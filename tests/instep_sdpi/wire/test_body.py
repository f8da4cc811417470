"""Bodies: which children are arrays, and how an element is kept as it came."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
from lxml import etree

from instep_sdpi.wire.body import REPEATED, canonical_xml

ELEMENT = "{http://www.w3.org/2001/XMLSchema}element"


def test_what_may_repeat_is_what_the_schema_says() -> None:
    spec = importlib.util.find_spec("sdc11073")
    if spec is None or spec.origin is None:
        pytest.skip("the schema of BICEPS comes with sdc11073")
    schema = ET.parse(Path(spec.origin).parent / "xsd" / "BICEPS_ParticipantModel.xsd").getroot()
    may_repeat = {e.get("name") for e in schema.iter(ELEMENT) if e.get("maxOccurs", "1") != "1"}
    # A State is an entity; a Value repeats within AllowedValues only.
    assert may_repeat - {"State", "Value"} == REPEATED


def test_the_same_content_is_the_same_in_canonical_form() -> None:
    one, other = (
        canonical_xml(etree.fromstring(text))
        for text in ("<p:a xmlns:p='urn:p' x='1' y='2'/>", '<p:a y="2"  x="1" xmlns:p="urn:p" />')
    )
    assert one == other


def test_an_element_with_a_namespace_that_has_no_canonical_form_is_kept() -> None:
    kept = canonical_xml(etree.fromstring('<p:a xmlns:p="relative"><p:b/></p:a>'))
    assert etree.fromstring(kept)[0].tag == "{relative}b"

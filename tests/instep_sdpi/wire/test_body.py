"""Which children are arrays: those that the schema of BICEPS lets repeat."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from instep_sdpi.wire.body import REPEATED

ELEMENT = "{http://www.w3.org/2001/XMLSchema}element"


def test_what_may_repeat_is_what_the_schema_says() -> None:
    spec = importlib.util.find_spec("sdc11073")
    if spec is None or spec.origin is None:
        pytest.skip("the schema of BICEPS comes with sdc11073")
    schema = ET.parse(Path(spec.origin).parent / "xsd" / "BICEPS_ParticipantModel.xsd").getroot()
    may_repeat = {e.get("name") for e in schema.iter(ELEMENT) if e.get("maxOccurs", "1") != "1"}
    # A State is an entity; a Value repeats within AllowedValues only.
    assert may_repeat - {"State", "Value"} == REPEATED

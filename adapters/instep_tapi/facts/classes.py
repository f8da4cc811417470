"""TAPI's classes of both editions, 2.1.3 and 2.4 to 2.6: what each is called, where its entities
stand (TR-548 3.10.1; v3.2 3.10.3), and which resource shows them. Data: `docs/tapi_classes.py`
writes it from the YANG.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

import msgspec

__all__ = ["CLASSES_FILE", "CLASS_MODEL", "ClassModel", "ClassPlace"]

CLASSES_FILE: Final = Path(__file__).with_name("classes.json")
"""The columns of the typed views stand in it, too, and are read when a lake asks for them."""


class ClassPlace(msgspec.Struct, omit_defaults=True):
    """Where the entities of one class are stated."""

    container: str = ""
    """The member of log-record-body that states one; empty for a class that has none."""
    local: bool = False
    """Whether it is identified by a local-id within what contains it, and not by a uuid."""
    contains: dict[str, str] = {}
    """Its members that hold entities → the class of these."""
    identity: str = ""
    """How record-content names it from 2.4 on, with the module."""
    member: str = ""
    """The container as RFC 7951 has it from 2.4 on: with its module, where that is not
    tapi-streaming."""


class ClassModel(msgspec.Struct):
    """All that is read of the file at once."""

    places: dict[str, ClassPlace]
    """By class, as 2.1.3 names it; those of 2.6 alone as 2.6 does."""
    spellings: dict[str, str]
    """The classes that 2.6 names otherwise → their names in 2.1.3."""
    resources: dict[str, dict[str, frozenset[str]]]
    """Edition → resource below the context → classes whose entities it shows."""
    paths: dict[str, dict[str, dict[str, str]]]
    """Edition → class → class right above it → where the list of its entities stands below one of
    those (RFC 8040 3.5.3).
    """


CLASS_MODEL: Final = msgspec.json.Decoder(ClassModel).decode(CLASSES_FILE.read_bytes())

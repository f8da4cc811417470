"""The entry point `tapi-lake` of `instep.derivations`."""

from __future__ import annotations

from typing import Final

import msgspec

from instep.ports.lake import LakeDerivation, TypedModel
from instep_tapi.facts.classes import CLASSES_FILE
from instep_tapi.facts.times import time_us
from instep_tapi.lake.alarms import ALARMS
from instep_tapi.lake.event_times import EVENT_SQL, read_envelopes
from instep_tapi.lake.readings import READINGS
from instep_tapi.lake.topology import TOPOLOGY
from instep_tapi.lake.views import FUNCTIONS, VIEWS

__all__ = ["derivation", "typed_model"]

_decode: Final = msgspec.json.Decoder(TypedModel).decode


def typed_model() -> TypedModel:
    """The classes with their members, as the YANG of both editions has them."""
    return _decode(CLASSES_FILE.read_bytes())


derivation: Final = LakeDerivation(
    read_envelopes=read_envelopes,
    read_time=time_us,
    event_sql=EVENT_SQL,
    episodes=(ALARMS,),
    entities=(TOPOLOGY,),
    readings=READINGS,
    views=VIEWS,
    functions=FUNCTIONS,
    typed=typed_model,
)

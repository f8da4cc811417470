"""The entry point `tapi-lake` of `instep.derivations`."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import msgspec

from instep.ports.lake import LakeDerivation, TypedModel
from instep_tapi.facts.times import time_us
from instep_tapi.lake.alarms import ALARMS
from instep_tapi.lake.event_times import EVENT_SQL, read_envelopes
from instep_tapi.lake.topology import TOPOLOGY
from instep_tapi.lake.views import VIEWS

__all__ = ["TYPED_COLUMNS", "derivation", "typed_model"]

TYPED_COLUMNS: Final = Path(__file__).with_name("typed_columns.json")
"""The members of the classes, from the YANG: `docs/typed_columns.py` writes it."""
_decode: Final = msgspec.json.Decoder(TypedModel).decode


def typed_model() -> TypedModel:
    """The classes with their members."""
    return _decode(TYPED_COLUMNS.read_bytes())


derivation: Final = LakeDerivation(
    read_envelopes=read_envelopes,
    read_time=time_us,
    event_sql=EVENT_SQL,
    episodes=(ALARMS,),
    entities=(TOPOLOGY,),
    views=VIEWS,
    typed=typed_model,
)

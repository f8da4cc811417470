"""The list of alarms and threshold crossings that ONMI publishes for TAPI 2.6, as records of
condition-detectors.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest

from tests.instep_tapi.small_provider_kit import stated

__all__ = ["Entry", "alarm_list", "statements"]

_SHEETS: Final = {
    "TAPI Standard Alarms": ("ALARM_DETECTOR", "ALR"),
    "TAPI Standard TCAs": ("PM_THRESHOLD_DETECTOR", "PM"),
}
_TARGETS: Final = {
    "Equipment": "tapi-equipment:EQUIPMENT_OBJECT_TYPE_EQUIPMENT",
    "Device": "tapi-equipment:EQUIPMENT_OBJECT_TYPE_DEVICE",
    "CEP": "tapi-connectivity:CONNECTIVITY_OBJECT_TYPE_CONNECTION_END_POINT",
    "TCM-MEP": "tapi-oam:OAM_OBJECT_TYPE_MEP",
    "Switch": "tapi-connectivity:CONNECTIVITY_OBJECT_TYPE_SWITCH",
    "Holder": "tapi-equipment:EQUIPMENT_OBJECT_TYPE_HOLDER",
}
_CLASSES: Final = {"CEP": "CONNECTION_END_POINT", "TCM-MEP": "MEG_END_POINT"}
_SEVERITIES: Final = ("CRITICAL", "MAJOR", "MINOR", "WARNING")


class Entry(NamedTuple):
    """One line of the list."""

    key: str
    name: str
    """The standard name; empty for a condition that has none."""
    native: str
    detector: str
    prefix: str
    severity: str
    target: str
    """The kind of object that the list names first."""
    qualifier: str

    @property
    def normalized(self) -> str | None:
        """What the condition is called in a store."""
        return f"{self.prefix}_{self.name}" if self.name else None

    @property
    def worse(self) -> str:
        """Another severity."""
        return "MAJOR" if self.severity == "CRITICAL" else "CRITICAL"

    @property
    def worst(self) -> str:
        """The worst that it had."""
        return min(self.severity, self.worse, key=_SEVERITIES.index)

    @property
    def measured_class(self) -> str:
        """The class of the target as TAPI names it."""
        return _CLASSES.get(self.target, self.target.upper())

    def detected(self, state: str, severity: str) -> dict[str, Any]:
        """The condition-detector that states this."""
        name = f"tapi-common:{self.normalized}" if self.name else "tapi-common:DC_NATIVE"
        return {
            "detector-native-id": self.key,
            "measured-entity-uuid": f"uuid of {self.target}",
            "measured-entity-class": _TARGETS[self.target],
            "condition-detector-type": f"CONDITION_DETECTOR_TYPE_{self.detector}",
            "tapi-fm:detected-condition": {
                "detected-condition-name": name,
                "detected-condition-native-name": self.native,
                "detected-condition-qualifier": self.qualifier,
                "detector-info": {
                    "perceived-severity": severity,
                    "is-acknowledge": False,
                },
                "simple-detector": {
                    "simple-detector-state": f"tapi-fm:SIMPLE_DETECTOR_STATE_{state}"
                },
            },
        }


def alarm_list(shared_data: Path) -> list[Entry]:
    """All lines. Skips the test where the list is absent."""
    path = shared_data / "tapi" / "tapi_alarm_tca_list_v3.0.0.json"
    if not path.is_file():
        pytest.skip(f"the list of alarms is not in {path.parent}")
    sheets = json.loads(path.read_bytes())
    return [one for sheet in _SHEETS for one in _entries(sheet, sheets[sheet][1:])]


def _entries(sheet: str, rows: list[list[Any]]) -> Iterator[Entry]:
    detector, prefix = _SHEETS[sheet]
    for index, name, qualifier, _, description, _, target, _, _, severity, *_ in rows:
        named = str(severity or "").upper()
        kind = re.split(r"[/, +]| or ", target)[0]
        yield Entry(
            key=f"{prefix} {index}",
            name="" if name == "NATIVE" else name.strip(),
            native=description or f"{sheet} {index}",
            detector=detector,
            prefix=prefix,
            severity=named if named in _SEVERITIES else "MINOR",
            target=kind if kind in _TARGETS else "Equipment",
            qualifier=qualifier or "",
        )


def statements(entries: list[Entry]) -> dict[str, list[bytes]]:
    """The records that raise, change and clear each of them, by step, in the order of a log."""
    numbers = count(1)

    def step(at_s: int, state: str, *, worse: bool) -> list[bytes]:
        return [
            stated(
                next(numbers),
                one.key,
                "CONDITION_DETECTOR",
                one.detected(state, one.worse if worse else one.severity),
                second=at_s,
            )
            for one in entries
        ]

    return {
        "raised": step(0, "ACTIVE", worse=False),
        "changed": step(60, "INTERMITTENT", worse=True),
        "cleared": step(120, "CLEAR", worse=True),
    }

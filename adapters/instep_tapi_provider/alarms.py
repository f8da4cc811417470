"""Alarms as TR-548 4.4 to 4.8 has them: condition detectors with a state, keyed by their
detector.
"""

import hashlib
import uuid
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Final

import msgspec

from instep_tapi.facts.names import CONDITION_DETECTOR, AlarmDetectorState, ConditionDetectorType
from instep_tapi_provider.records import RecordStyle, Statement


@dataclass(frozen=True, slots=True)
class Condition:
    """A condition that equipment detects: its usual abbreviation, what a device calls it, and its
    severity.

    `classes`: where it is detected. `affecting`: whether it takes service down.
    """

    name: str
    native_name: str
    severity: str
    affecting: bool
    classes: tuple[str, ...]

    @property
    def identity(self) -> str:
        """The identity of tapi-common for it from TAPI 2.4 on."""
        name = self.name.replace("-", "_").removeprefix("OTU_").removeprefix("ODU_")
        return f"ALR_{name}" if name in _STANDARD else "DC_NATIVE"


# Of the names of tapi-common, those that conditions of `CONDITIONS` have.
_STANDARD: Final = frozenset(
    {
        *("LOS", "LOS_P", "LOS_O", "LOF", "LOM", "BDI", "TIM", "DEG", "OCI", "LCK", "SSF", "PLM"),
        *("MSIM", "CSF", "HITEMP", "COMM_FAIL"),
    }
)
_CEP = ("CONNECTION_END_POINT",)
_NEP = ("NODE_EDGE_POINT",)
_PORT = ("NODE_EDGE_POINT", "CONNECTION_END_POINT")
_NODE = ("NODE", "DEVICE", "EQUIPMENT")

# Well-known conditions of optical and OTN equipment (ITU-T G.798, G.874, X.733, M.3160).
CONDITIONS: Final[tuple[Condition, ...]] = (
    Condition("LOS", "Loss Of Signal", "CRITICAL", True, _NEP),
    Condition("LOS-P", "OCh Loss of Signal Payload", "CRITICAL", True, _PORT),
    Condition("LOS-O", "OCh Loss of Signal Overhead", "MAJOR", False, _PORT),
    Condition("LOF", "Loss Of Frame", "CRITICAL", True, _PORT),
    Condition("LOM", "Loss Of Multiframe", "CRITICAL", True, _PORT),
    Condition("OTU-LOF", "OTU Loss Of Frame", "CRITICAL", True, _PORT),
    Condition("OTU-AIS", "OTU Alarm Indication Signal", "WARNING", False, _CEP),
    Condition("OTU-BDI", "OTU Backward Defect Indication", "MINOR", False, _CEP),
    Condition("OTU-TIM", "OTU Trail Trace Identifier Mismatch", "MAJOR", False, _CEP),
    Condition("OTU-DEG", "OTU Signal Degrade", "MAJOR", False, _CEP),
    Condition("ODU-AIS", "ODU Alarm Indication Signal", "WARNING", False, _CEP),
    Condition("ODU-OCI", "ODU Open Connection Indication", "MAJOR", True, _CEP),
    Condition("ODU-LCK", "ODU Locked Defect", "MINOR", True, _CEP),
    Condition("ODU-BDI", "ODU Backward Defect Indication", "MINOR", False, _CEP),
    Condition("ODU-TIM", "ODU Trail Trace Identifier Mismatch", "MAJOR", False, _CEP),
    Condition("ODU-DEG", "ODU Signal Degrade", "MAJOR", False, _CEP),
    Condition("ODU-SSF", "ODU Server Signal Fail", "MINOR", False, _CEP),
    Condition("PLM", "Payload Type Mismatch", "CRITICAL", True, _CEP),
    Condition("MSIM", "Multiplex Structure Identifier Mismatch", "CRITICAL", True, _CEP),
    Condition("CSF", "Client Signal Fail", "MAJOR", True, _CEP),
    Condition("FEC-EXC", "Pre-FEC Bit Error Rate Exceeded", "MAJOR", False, _PORT),
    Condition("RX-PWR-LOW", "Receive Optical Power Low", "MINOR", False, _NEP),
    Condition("RX-PWR-HIGH", "Receive Optical Power High", "MINOR", False, _NEP),
    Condition("TX-PWR-LOW", "Transmit Optical Power Low", "MAJOR", False, _NEP),
    Condition("LASER-BIAS", "Laser Bias Current Out Of Range", "MINOR", False, _NEP),
    Condition("OSC-LOS", "Optical Supervisory Channel Loss", "MAJOR", False, _NEP),
    Condition("SPAN-LOSS", "Span Loss Out Of Range", "MINOR", False, ("LINK", "NODE_EDGE_POINT")),
    Condition("FANFAIL", "Fan Failure", "MAJOR", False, _NODE),
    Condition("PWRFAIL", "Power Supply Failure", "MAJOR", False, _NODE),
    Condition("HITEMP", "High Temperature", "MAJOR", False, _NODE),
    Condition("EQPT-MISS", "Equipment Missing", "CRITICAL", True, _NODE),
    Condition("EQPT-FAIL", "Equipment Failure", "CRITICAL", True, _NODE),
    Condition("SYNC-LOSS", "Timing Reference Lost", "MINOR", False, _NODE),
    Condition("COMM-FAIL", "Management Communication Failure", "MINOR", False, _NODE),
)
MEASURED_CLASSES: Final = frozenset(cls for condition in CONDITIONS for cls in condition.classes)
SEVERITIES: Final = ("CRITICAL", "MAJOR", "MINOR", "WARNING")


@lru_cache(maxsize=256)
def conditions_of(cls: str) -> tuple[Condition, ...]:
    """The conditions that are detected at entities of a class."""
    return tuple(condition for condition in CONDITIONS if cls in condition.classes)


@dataclass(slots=True)
class Alarm:
    """One alarm. Its key is the native id of its detector: location and condition, for ever the
    same (4.6).

    `detector` distinguishes several detectors of one condition at one entity.
    """

    condition: Condition
    measured_uuid: str
    measured_class: str
    measured_key: str
    measured_native_id: str
    detector: int = 0
    state: AlarmDetectorState = AlarmDetectorState.ACTIVE
    severity: str = ""
    info: list[str] = field(default_factory=list)
    acknowledged: bool = False
    raised_s: float | None = None
    key: str = ""
    detector_uuid: str = ""

    def __post_init__(self) -> None:
        self.severity = self.severity or self.condition.severity
        location = f"{self.measured_key} {self.condition.name} {self.detector}"
        digest = hashlib.sha256(location.encode()).digest()
        # Seen in the field: a signed 64-bit number as a string, so it can be negative.
        self.key = str(int.from_bytes(digest[:8], "big", signed=True))
        self.detector_uuid = str(uuid.UUID(bytes=digest[8:24], version=4))

    def statement(self, style: RecordStyle) -> Statement:
        """The body of the log record that states this alarm now."""
        content: dict[str, Any] = {
            "measured-entity-uuid": self.measured_uuid,
            "measured-entity-native-id": self.measured_native_id,
            "measured-entity-class": style.class_name(self.measured_class),
            "detector-uuid": self.detector_uuid,
            "detector-native-id": self.key,
            "condition-detector-type": style.identity(ConditionDetectorType.ALARM_DETECTOR),
        }
        if style.is_2_6:
            content["tapi-fm:detected-condition"] = self._detected_condition(style)
        else:
            content |= self._condition_of_2_1_3(style)
        return Statement(
            self.key, CONDITION_DETECTOR, msgspec.json.encode(content), event_s=self.raised_s
        )

    def active_condition(self, style: RecordStyle) -> dict[str, Any]:
        """This alarm in the fault-management-context, from TAPI 2.4.1 on."""
        raised = {} if self.raised_s is None else {"event-time-stamp": style.time(self.raised_s)}
        return {
            "uuid": self.detector_uuid,
            "target-object-type": style.class_name(self.measured_class),
            "target-object-identifier": self.measured_uuid,
            "detected-condition": self._detected_condition(style),
            **raised,
        }

    def _condition_of_2_1_3(self, style: RecordStyle) -> dict[str, Any]:
        return {
            "condition-native-name": self.condition.native_name,
            "condition-normalized-name": self.condition.name,
            "alarm-condition-detector-detail": {
                "alarm-detector-state": style.identity(self.state),
                "legacy-properties": {
                    "perceived-severity": self.severity,
                    "service-affect": self._service_affect,
                    "is-acknowledged": self.acknowledged,
                    "additional-alarm-info": self.info,
                },
            },
        }

    def _detected_condition(self, style: RecordStyle) -> dict[str, Any]:
        """As tapi-fm has it (v3.2 4.5)."""
        state = style.spelled(f"tapi-fm:SIMPLE_DETECTOR_STATE_{self.state.value}")
        return {
            "detected-condition-name": f"tapi-common:{self.condition.identity}",
            "detected-condition-native-name": self.condition.native_name,
            "detected-condition-native-info": "; ".join(self.info),
            "detector-info": {
                "perceived-severity": self.severity,
                "service-affecting": self._service_affect,
                "is-acknowledge": self.acknowledged,
            },
            "simple-detector": {"simple-detector-state": state},
        }

    @property
    def _service_affect(self) -> str:
        return "SERVICE_AFFECTING" if self.condition.affecting else "NOT_SERVICE_AFFECTING"

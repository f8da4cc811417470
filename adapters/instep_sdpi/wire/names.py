"""The names of BICEPS, DPWS and WS-Eventing, and what each report of BICEPS covers."""

from __future__ import annotations

from enum import StrEnum
from typing import Final

import msgspec

__all__ = [
    "ACTION_DIALECT",
    "CLASSES",
    "DPWS",
    "EXTENSION",
    "GET_CONTEXT_STATES",
    "GET_MDIB",
    "MESSAGE",
    "METADATA",
    "PARTICIPANT",
    "REPORTS",
    "SDC",
    "SDPI",
    "TRANSFER_GET",
    "WSE",
    "XSI_TYPE",
    "MdibPart",
    "ReportKind",
    "message_name",
    "participant_name",
    "report_kind",
    "wse_name",
]

SDC: Final = "http://standards.ieee.org/downloads/11073/11073-20701-2018"
MESSAGE: Final = "http://standards.ieee.org/downloads/11073/11073-10207-2017/message"
PARTICIPANT: Final = "http://standards.ieee.org/downloads/11073/11073-10207-2017/participant"
EXTENSION: Final = "http://standards.ieee.org/downloads/11073/11073-10207-2017/extension"
SDPI: Final = "urn:oid:1.3.6.1.4.1.19376.1.6.2.10.1.1.1"
WSE: Final = "http://schemas.xmlsoap.org/ws/2004/08/eventing"
METADATA: Final = "http://schemas.xmlsoap.org/ws/2004/09/mex"
DPWS: Final = "http://docs.oasis-open.org/ws-dd/ns/dpws/2009/01"
XSI_TYPE: Final = "{http://www.w3.org/2001/XMLSchema-instance}type"

ACTION_DIALECT: Final = f"{DPWS}/Action"
"""The dialect of a filter that lists actions (DPWS 1.1, 6.1.1)."""
TRANSFER_GET: Final = "http://schemas.xmlsoap.org/ws/2004/09/transfer/Get"
GET_MDIB: Final = f"{SDC}/GetService/GetMdib"
GET_CONTEXT_STATES: Final = f"{SDC}/ContextService/GetContextStates"


class MdibPart(StrEnum):
    """A part of the MDIB: the entities that reports of one kind keep up to date."""

    DESCRIPTION = "description"
    METRIC = "metric"
    WAVEFORM = "waveform"
    """Samples of a RealTimeSampleArrayMetricState."""
    ALERT = "alert"
    COMPONENT = "component"
    OPERATION = "operation"
    CONTEXT = "context"


class ReportKind(msgspec.Struct, frozen=True):
    """A report of BICEPS (IEEE 11073-10207, 7.3), and the service that sends it (IEEE
    11073-20701).
    """

    name: str
    service: str
    """The port type, as a hosted service states it among its types."""
    covers: frozenset[MdibPart] = frozenset()
    """Empty: it states no entity."""

    @property
    def action(self) -> str:
        """What a subscription's filter names it by."""
        return f"{SDC}/{self.service}/{self.name}"


def _kinds() -> dict[str, ReportKind]:
    by_part = {
        "Metric": ("StateEventService", MdibPart.METRIC),
        "Alert": ("StateEventService", MdibPart.ALERT),
        "Component": ("StateEventService", MdibPart.COMPONENT),
        "OperationalState": ("StateEventService", MdibPart.OPERATION),
        "Context": ("ContextService", MdibPart.CONTEXT),
    }
    kinds = [
        ReportKind(f"{how}{what}Report", service, frozenset({part}))
        for what, (service, part) in by_part.items()
        for how in ("Episodic", "Periodic")
    ]
    kinds += [
        ReportKind(
            "DescriptionModificationReport",
            "DescriptionEventService",
            frozenset({MdibPart.DESCRIPTION}),
        ),
        ReportKind("WaveformStream", "WaveformService", frozenset({MdibPart.WAVEFORM})),
        ReportKind("ObservedValueStream", "WaveformService"),
        ReportKind("SystemErrorReport", "StateEventService"),
        ReportKind("OperationInvokedReport", "SetService"),
    ]
    return {kind.name: kind for kind in kinds}


def _classes() -> dict[MdibPart, frozenset[str]]:
    components = "Mds Vmd Channel Clock Battery Sco SystemContext AlertSystem"
    contexts = "Patient Location Ensemble Operator Workflow Means"
    metrics = "Numeric String EnumString DistributionSampleArray RealTimeSampleArray"
    operations = (
        "SetValue SetString Activate SetContextState SetMetricState SetComponentState SetAlertState"
    )
    alerts = "AlertCondition LimitAlertCondition AlertSignal"
    described = [f"{name}Descriptor" for name in f"{components} {alerts}".split()]
    described += [f"{name}ContextDescriptor" for name in contexts.split()]
    described += [f"{name}MetricDescriptor" for name in metrics.split()]
    described += [f"{name}OperationDescriptor" for name in operations.split()]
    waveform = "RealTimeSampleArrayMetricState"
    return {
        MdibPart.DESCRIPTION: frozenset(described),
        MdibPart.METRIC: frozenset(f"{name}MetricState" for name in metrics.split()) - {waveform},
        MdibPart.WAVEFORM: frozenset({waveform}),
        MdibPart.ALERT: frozenset(f"{name}State" for name in f"AlertSystem {alerts}".split()),
        MdibPart.COMPONENT: frozenset(f"{name}State" for name in components.split())
        - {"AlertSystemState"},
        MdibPart.OPERATION: frozenset(f"{name}OperationState" for name in operations.split()),
        MdibPart.CONTEXT: frozenset(f"{name}ContextState" for name in contexts.split()),
    }


CLASSES: Final = _classes()
"""The classes of BICEPS by the part of the MDIB that they belong to."""
REPORTS: Final = _kinds()
"""Each report by its name."""
_BY_ACTION: Final = {kind.action: kind for kind in REPORTS.values()}


def report_kind(name: str) -> ReportKind | None:
    """The report of a name or of an action; None: BICEPS has none of it."""
    return REPORTS.get(name) or _BY_ACTION.get(name)


def message_name(local: str) -> str:
    """A name of the message model, as lxml writes it."""
    return f"{{{MESSAGE}}}{local}"


def participant_name(local: str) -> str:
    """A name of the participant model, as lxml writes it."""
    return f"{{{PARTICIPANT}}}{local}"


def wse_name(local: str) -> str:
    """A name of WS-Eventing, as lxml writes it."""
    return f"{{{WSE}}}{local}"

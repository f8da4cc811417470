"""The envelopes of a BICEPS device, as sdc11073 writes them: services, MDIB and reports."""

from __future__ import annotations

from typing import Final

__all__ = [
    "MESSAGE",
    "PARTICIPANT",
    "SDPI",
    "SOAP",
    "WSA",
    "WSE",
    "context_states",
    "envelope",
    "granted",
    "mdib",
    "metadata",
    "report",
]

SOAP: Final = "http://www.w3.org/2003/05/soap-envelope"
WSA: Final = "http://www.w3.org/2005/08/addressing"
WSE: Final = "http://schemas.xmlsoap.org/ws/2004/08/eventing"
SDPI: Final = "urn:oid:1.3.6.1.4.1.19376.1.6.2.10.1.1.1"
MESSAGE: Final = "http://standards.ieee.org/downloads/11073/11073-10207-2017/message"
PARTICIPANT: Final = "http://standards.ieee.org/downloads/11073/11073-10207-2017/participant"
_SDC: Final = "http://standards.ieee.org/downloads/11073/11073-20701-2018"
_DPWS: Final = "http://docs.oasis-open.org/ws-dd/ns/dpws/2009/01"
_METADATA: Final = "http://schemas.xmlsoap.org/ws/2004/09/mex"
_SEQUENCE: Final = "urn:uuid:0c178815-bb05-42c8-9698-3d062866e345"
_STATED: Final = (
    f'xmlns:dom="{PARTICIPANT}" xmlns:msg="{MESSAGE}" '
    'xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance" '
    f'MdibVersion="{{}}" SequenceId="{_SEQUENCE}"'
)
_STATE: Final = (
    'DescriptorHandle="{handle}" DescriptorVersion="0" StateVersion="{value}" '
    'ActivationState="On" xsi:type="dom:NumericMetricState"><dom:MetricValue '
    'DeterminationTime="1795253319666" Value="{value}"><dom:MetricQuality Validity="Vld"/>'
    "</dom:MetricValue>"
)
_METRIC: Final = (
    '<dom:Metric Handle="{handle}" DescriptorVersion="0" SafetyClassification="MedA" '
    'MetricCategory="Msrmt" MetricAvailability="Cont" Resolution="0.1" DeterminationPeriod="PT1S" '
    'xsi:type="dom:NumericMetricDescriptor"><dom:Type Code="150456" '
    'CodingSystem="urn:oid:1.2.840.10004.1.1.1.0.0.1"/><dom:Unit Code="262688"/></dom:Metric>'
)
_CHANNEL_METRICS: Final = 100


def envelope(header: str, body: str) -> bytes:
    """An envelope."""
    return (
        "<?xml version='1.0' encoding='UTF-8'?>\n"
        f'<s12:Envelope xmlns:s12="{SOAP}" xmlns:wse="{WSE}" xmlns:wsa="{WSA}" '
        f'xmlns:sdpi="{SDPI}"><s12:Header>{header}</s12:Header><s12:Body>{body}</s12:Body>'
        "</s12:Envelope>"
    ).encode()


def metadata(url: str) -> bytes:
    """What the device hosts: every service at one address."""
    services = ("GetService", "StateEventService", "DescriptionEventService", "ContextService")
    types = " ".join(f"sdc:{service}" for service in services)
    return envelope(
        "",
        f'<x:Metadata xmlns:x="{_METADATA}" xmlns:d="{_DPWS}" xmlns:sdc="{_SDC}">'
        "<x:MetadataSection><d:Relationship><d:Host><wsa:EndpointReference><wsa:Address>"
        "urn:uuid:11111111-1111-1111-1111-111111111111</wsa:Address></wsa:EndpointReference>"
        "</d:Host><d:Hosted><wsa:EndpointReference><wsa:Address>"
        f"{url}</wsa:Address></wsa:EndpointReference><d:Types>{types}</d:Types>"
        "<d:ServiceId>All</d:ServiceId></d:Hosted></d:Relationship></x:MetadataSection>"
        "</x:Metadata>",
    )


def granted(request: str, url: str) -> bytes:
    """The response to a request of WS-Eventing: Subscribe, GetStatus or Unsubscribe."""
    return envelope(
        "",
        f"<wse:{request}Response><wse:SubscriptionManager><wsa:Address>{url}</wsa:Address>"
        f"</wse:SubscriptionManager><wse:Expires>PT3600S</wse:Expires></wse:{request}Response>",
    )


def context_states() -> bytes:
    """All context states: none."""
    return envelope("", f"<msg:GetContextStatesResponse {_STATED.format(0)}/>")


def mdib(metrics: int) -> bytes:
    """The whole MDIB: so many metrics, each with its state, a hundred to a channel."""
    channels = []
    for first in range(0, metrics, _CHANNEL_METRICS):
        handles = range(first, min(metrics, first + _CHANNEL_METRICS))
        within = "".join(_METRIC.format(handle=f"metric.{number}") for number in handles)
        channels.append(f'<dom:Channel Handle="channel.{first}">{within}</dom:Channel>')
    states = "".join(
        f"<dom:State {_STATE.format(handle=f'metric.{number}', value=0)}</dom:State>"
        for number in range(metrics)
    )
    return envelope(
        "",
        f"<msg:GetMdibResponse {_STATED.format(0)}><msg:Mdib><dom:MdDescription>"
        f'<dom:Mds Handle="mds0"><dom:Vmd Handle="vmd0">{"".join(channels)}</dom:Vmd></dom:Mds>'
        f"</dom:MdDescription><dom:MdState>{states}</dom:MdState></msg:Mdib>"
        "</msg:GetMdibResponse>",
    )


def report(notify_to: str, number: int, states: int, metrics: int) -> bytes:
    """The report with this number: so many metrics have new values, in turn."""
    first = (number - 1) * states
    stated = "".join(
        "<msg:MetricState "
        f"{_STATE.format(handle=f'metric.{place % metrics}', value=number)}</msg:MetricState>"
        for place in range(first, first + states)
    )
    return envelope(
        f"<wsa:To>{notify_to}</wsa:To>"
        f"<wsa:Action>{_SDC}/StateEventService/EpisodicMetricReport</wsa:Action>"
        f"<wsa:MessageID>urn:uuid:a5f0392c-f40a-493e-a277-{number:012x}</wsa:MessageID>"
        f'<sdpi:ReportSequence MessageNumber="{number}"/>',
        f"<msg:EpisodicMetricReport {_STATED.format(number)}><msg:ReportPart>"
        f"<msg:SourceMds>mds0</msg:SourceMds>{stated}</msg:ReportPart>"
        "</msg:EpisodicMetricReport>",
    )

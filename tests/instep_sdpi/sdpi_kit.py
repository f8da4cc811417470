"""Envelopes as a provider writes them, for tests that need other content than was captured."""

from __future__ import annotations

__all__ = ["SEQUENCE", "envelope", "metric_report", "metric_state", "report"]

SEQUENCE = "urn:uuid:0c178815-bb05-42c8-9698-3d062866e345"
_ENVELOPE = """<?xml version='1.0' encoding='UTF-8'?>
<s12:Envelope xmlns:s12="http://www.w3.org/2003/05/soap-envelope"
  xmlns:wsa="http://www.w3.org/2005/08/addressing"
  xmlns:wse="http://schemas.xmlsoap.org/ws/2004/08/eventing"
  xmlns:sdpi="urn:oid:1.3.6.1.4.1.19376.1.6.2.10.1.1.1"
  xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance"
  xmlns:ext="http://standards.ieee.org/downloads/11073/11073-10207-2017/extension"
  xmlns:dom="http://standards.ieee.org/downloads/11073/11073-10207-2017/participant"
  xmlns:msg="http://standards.ieee.org/downloads/11073/11073-10207-2017/message">
  <s12:Header>{header}</s12:Header><s12:Body>{body}</s12:Body></s12:Envelope>"""


def envelope(body: str, number: str | None = None, header: str = "") -> bytes:
    """An envelope with this body; `number` as the attribute is written."""
    if number is not None:
        header += f'<sdpi:ReportSequence MessageNumber="{number}"/>'
    return _ENVELOPE.format(header=header, body=body).encode()


def report(name: str, parts: str, version: int = 1, sequence: str = SEQUENCE) -> str:
    """The body of a report."""
    return f'<msg:{name} MdibVersion="{version}" SequenceId="{sequence}">{parts}</msg:{name}>'


def metric_state(value: str, handle: str = "m1", version: int = 1) -> str:
    return (
        f'<msg:MetricState xsi:type="dom:NumericMetricState" DescriptorHandle="{handle}"'
        f' StateVersion="{version}"><dom:MetricValue Value="{value}"/></msg:MetricState>'
    )


def metric_report(value: str, version: int = 1, sequence: str = SEQUENCE) -> str:
    parts = f"<msg:ReportPart>{metric_state(value, version=version)}</msg:ReportPart>"
    return report("EpisodicMetricReport", parts, version, sequence)

"""SOAP 1.1 and 1.2 with WS-Addressing, over HTTP: what the SOAP protocols of instep share."""

from __future__ import annotations

from instep_soap.addressing import (
    Addressing,
    EndpointReference,
    read_reference,
    with_message_id,
    write_reference,
)
from instep_soap.allowed_endpoints import AllowedEndpoints
from instep_soap.client import post_envelope, read_answer, send_envelope
from instep_soap.datetimes import read_datetime_us, write_datetime
from instep_soap.durations import read_duration_s, write_duration
from instep_soap.endpoint import SoapAnswer, SoapEndpoint, SoapHandler, SoapRequest, UsualMessages
from instep_soap.envelope import (
    Envelope,
    check_understood,
    fault_of,
    header_envelope,
    new_envelope,
    read_envelope,
    xml_bytes,
    xml_text,
    xml_value,
)
from instep_soap.errors import FaultCode, SoapFaultError
from instep_soap.header_templates import HeaderReading, HeaderTemplates
from instep_soap.listener import SoapListener
from instep_soap.names import (
    SOAP11,
    SOAP12,
    WSA_2004,
    WSA_2005,
    SoapVersion,
    WsaVersion,
    local_name,
    namespace_of,
)
from instep_soap.options import SoapOptions, read_soap_options
from instep_soap.receiver import AWAY, SoapReceiver, read_reply
from instep_soap.sequence_cache import OpenedSequence, SequenceCache
from instep_soap.xml import XmlError, XmlLimits, first_children, read_qname, read_xml

__all__ = [
    "AWAY",
    "SOAP11",
    "SOAP12",
    "WSA_2004",
    "WSA_2005",
    "Addressing",
    "AllowedEndpoints",
    "EndpointReference",
    "Envelope",
    "FaultCode",
    "HeaderReading",
    "HeaderTemplates",
    "OpenedSequence",
    "SequenceCache",
    "SoapAnswer",
    "SoapEndpoint",
    "SoapFaultError",
    "SoapHandler",
    "SoapListener",
    "SoapOptions",
    "SoapReceiver",
    "SoapRequest",
    "SoapVersion",
    "UsualMessages",
    "WsaVersion",
    "XmlError",
    "XmlLimits",
    "check_understood",
    "fault_of",
    "first_children",
    "header_envelope",
    "local_name",
    "namespace_of",
    "new_envelope",
    "post_envelope",
    "read_answer",
    "read_datetime_us",
    "read_duration_s",
    "read_envelope",
    "read_qname",
    "read_reference",
    "read_reply",
    "read_soap_options",
    "read_xml",
    "send_envelope",
    "with_message_id",
    "write_datetime",
    "write_duration",
    "write_reference",
    "xml_bytes",
    "xml_text",
    "xml_value",
]

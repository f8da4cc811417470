"""WS-Reliability 1.1: the receiver of groups of messages over SOAP."""

from __future__ import annotations

from instep_wsr.deviations import DEVIATIONS
from instep_wsr.listener import WsrListener
from instep_wsr.options import Acknowledge, Options, read_options
from instep_wsr.wire.names import ReplyPattern, RmFaultCode

__all__ = [
    "DEVIATIONS",
    "Acknowledge",
    "Options",
    "ReplyPattern",
    "RmFaultCode",
    "WsrListener",
    "read_options",
]

"""The plug-in of the entry point `instep.sources: wsrm`."""

from __future__ import annotations

from instep.config.listener_plugin import ListenerPlugin
from instep_wsrm.deviations import DEVIATIONS
from instep_wsrm.listener import WsrmListener
from instep_wsrm.options import Options, read_options, risks

__all__ = ["source"]

source = ListenerPlugin(Options, read_options, WsrmListener, DEVIATIONS, risks)
"""Receives sequences of WS-ReliableMessaging over SOAP and HTTP."""

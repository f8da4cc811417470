"""The plug-in of the entry point `instep.sources: wsr`."""

from __future__ import annotations

from instep.config.listener_plugin import ListenerPlugin
from instep_wsr.deviations import DEVIATIONS
from instep_wsr.listener import WsrListener
from instep_wsr.options import Options, read_options

__all__ = ["source"]

source = ListenerPlugin(Options, read_options, WsrListener, DEVIATIONS)
"""Receives groups of WS-Reliability messages over SOAP and HTTP."""

"""The plug-in of the entry point `instep.sources: didcomm`."""

from __future__ import annotations

from instep.config.listener_plugin import ListenerPlugin
from instep_didcomm.deviations import DEVIATIONS
from instep_didcomm.listener import DidcommListener
from instep_didcomm.options import Options, read_options, risks

__all__ = ["source"]

source = ListenerPlugin(Options, read_options, DidcommListener, DEVIATIONS, risks)
"""Receives DIDComm messages by HTTP POST and WebSocket."""

"""WS-ReliableMessaging 1.0 and 1.1 (1.2), with cancellation and filling of message numbers."""

from __future__ import annotations

from instep_wsrm.deviations import DEVIATIONS
from instep_wsrm.listener import WsrmListener
from instep_wsrm.options import Assurance, Options, read_options

__all__ = ["DEVIATIONS", "Assurance", "Options", "WsrmListener", "read_options"]

"""ONF TAPI streaming (TR-548): RESTCONF discovery, WebSocket streams, baselines by GET."""

from instep_tapi.deviations import DEVIATIONS
from instep_tapi.options import Options, read_options
from instep_tapi.services import (
    IN_SERVICE,
    ConnectivityServices,
    ServiceFailedError,
    ServiceRefusedError,
    ServiceTimeoutError,
)
from instep_tapi.source import TapiSource
from instep_tapi.wire.decoder import FrameDecoder

__all__ = [
    "DEVIATIONS",
    "IN_SERVICE",
    "ConnectivityServices",
    "FrameDecoder",
    "Options",
    "ServiceFailedError",
    "ServiceRefusedError",
    "ServiceTimeoutError",
    "TapiSource",
    "read_options",
]

"""ONF TAPI streaming (TR-548): RESTCONF discovery, WebSocket streams, baselines by GET."""

from typing import TYPE_CHECKING

from instep.model.lazy_exports import lazy_exports

if TYPE_CHECKING:
    from instep_tapi.deviations import DEVIATIONS
    from instep_tapi.options import Options, read_options
    from instep_tapi.services import (
        IN_SERVICE,
        ConnectivityServices,
        ServiceFailedError,
        ServiceRefusedError,
        ServiceStaleError,
        ServiceTimeoutError,
        ServiceUnknownError,
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
    "ServiceStaleError",
    "ServiceTimeoutError",
    "ServiceUnknownError",
    "TapiSource",
    "read_options",
]
if not TYPE_CHECKING:  # a type checker would believe every name of `__getattr__`
    __getattr__, __dir__ = lazy_exports(
        globals(),
        {
            "instep_tapi.deviations": ("DEVIATIONS",),
            "instep_tapi.options": (
                "Options",
                "read_options",
            ),
            "instep_tapi.services": (
                "IN_SERVICE",
                "ConnectivityServices",
                "ServiceFailedError",
                "ServiceRefusedError",
                "ServiceStaleError",
                "ServiceTimeoutError",
                "ServiceUnknownError",
            ),
            "instep_tapi.source": ("TapiSource",),
            "instep_tapi.wire.decoder": ("FrameDecoder",),
        },
    )

"""The test kit: a TR-548 provider with real logs, real sockets and chosen faults.

See `Provider`; `topology_context` gives it a real backbone.
"""

from typing import TYPE_CHECKING

from instep.model.lazy_exports import lazy_exports

if TYPE_CHECKING:
    from instep_tapi_provider.alarms import CONDITIONS, Condition
    from instep_tapi_provider.clock import ScaledClock
    from instep_tapi_provider.context import Context, Nested
    from instep_tapi_provider.faults import Faults
    from instep_tapi_provider.log import Log, LogRecord, LogSettings, Start
    from instep_tapi_provider.provider import Provider
    from instep_tapi_provider.records import IdentityStyle, RecordStyle, Wrapper
    from instep_tapi_provider.settings import (
        Aliases,
        AuthSettings,
        DiscoveryStyle,
        ProviderSettings,
        StreamSettings,
        default_streams,
    )
    from instep_tapi_provider.stream import Counters, Stream
    from instep_tapi_provider.topology import topology_context

__all__ = [
    "CONDITIONS",
    "Aliases",
    "AuthSettings",
    "Condition",
    "Context",
    "Counters",
    "DiscoveryStyle",
    "Faults",
    "IdentityStyle",
    "Log",
    "LogRecord",
    "LogSettings",
    "Nested",
    "Provider",
    "ProviderSettings",
    "RecordStyle",
    "ScaledClock",
    "Start",
    "Stream",
    "StreamSettings",
    "Wrapper",
    "default_streams",
    "topology_context",
]
__getattr__, __dir__ = lazy_exports(
    globals(),
    {
        "instep_tapi_provider.alarms": (
            "CONDITIONS",
            "Condition",
        ),
        "instep_tapi_provider.clock": ("ScaledClock",),
        "instep_tapi_provider.context": (
            "Context",
            "Nested",
        ),
        "instep_tapi_provider.faults": ("Faults",),
        "instep_tapi_provider.log": (
            "Log",
            "LogRecord",
            "LogSettings",
            "Start",
        ),
        "instep_tapi_provider.provider": ("Provider",),
        "instep_tapi_provider.records": (
            "IdentityStyle",
            "RecordStyle",
            "Wrapper",
        ),
        "instep_tapi_provider.settings": (
            "Aliases",
            "AuthSettings",
            "DiscoveryStyle",
            "ProviderSettings",
            "StreamSettings",
            "default_streams",
        ),
        "instep_tapi_provider.stream": (
            "Counters",
            "Stream",
        ),
        "instep_tapi_provider.topology": ("topology_context",),
    },
)

"""The test kit: a TR-548 provider (v1.1) with real logs, real sockets and chosen faults.

See `Provider`; `topology_context` gives it a real backbone.
"""

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

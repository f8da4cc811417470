"""A TAPI streaming provider (TR-548 v1.1) to try clients against: real log, real server, chosen
faults.
"""

from instep_tapi.provider.alarms import CONDITIONS, Condition
from instep_tapi.provider.clock import ScaledClock
from instep_tapi.provider.context import Context, Nested
from instep_tapi.provider.faults import Faults
from instep_tapi.provider.log import Log, LogRecord, LogSettings, Start
from instep_tapi.provider.provider import Provider
from instep_tapi.provider.records import IdentityStyle, RecordStyle, Wrapper
from instep_tapi.provider.settings import (
    Aliases,
    AuthSettings,
    DiscoveryStyle,
    ProviderSettings,
    StreamSettings,
    default_streams,
)
from instep_tapi.provider.stream import Counters, Stream

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
]

"""The interfaces that plug-ins implement: sources, sinks, listeners, stores of messages,
readers.
"""

from instep.ports.audit import AuditMarks, SupportsAudit
from instep.ports.lease import Lease
from instep.ports.listener import Intake, Listener, Receipt, ReceiptOutcome
from instep.ports.message_store import MessageStore, OutboxStore, SupportsMessages
from instep.ports.plugin import SinkPlugin, SourcePlugin, Verifier, VerifierPlugin
from instep.ports.reader import (
    StoreReader,
    SupportsLeaseHandover,
    SupportsMessageReading,
    SupportsSweepRelease,
)
from instep.ports.sink import (
    LatestOnly,
    Sink,
    SupportsLease,
    SupportsStreamCatalog,
    SupportsSweepApproval,
)
from instep.ports.source import Feed, Source, SupportsCommitted, SupportsPing

__all__ = [
    "AuditMarks",
    "Feed",
    "Intake",
    "LatestOnly",
    "Lease",
    "Listener",
    "MessageStore",
    "OutboxStore",
    "Receipt",
    "ReceiptOutcome",
    "Sink",
    "SinkPlugin",
    "Source",
    "SourcePlugin",
    "StoreReader",
    "SupportsAudit",
    "SupportsCommitted",
    "SupportsLease",
    "SupportsLeaseHandover",
    "SupportsMessageReading",
    "SupportsMessages",
    "SupportsPing",
    "SupportsStreamCatalog",
    "SupportsSweepApproval",
    "SupportsSweepRelease",
    "Verifier",
    "VerifierPlugin",
]

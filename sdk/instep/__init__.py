"""instep keeps a consumer's store in step with a provider.

It reads the records of a notification stream, puts them in order, removes duplicates, and commits
the entities together with their position in the stream. It finds what the provider no longer
states, and removes it. Begin with `Consumer`.

A plug-in finds all that it needs here, too: the ports, what passes through them, errors, options.
"""

from typing import TYPE_CHECKING

from instep.model.lazy_exports import lazy_exports

if TYPE_CHECKING:
    from instep.alignment.absence import is_held
    from instep.alignment.audit import AuditReport, Finding, Verdict
    from instep.alignment.lag import Fidelity
    from instep.alignment.settings import AlignmentSettings
    from instep.config.options import read_table
    from instep.config.plugins import open_reader
    from instep.config.secret import Secret
    from instep.config.shown import shown_table
    from instep.errors import (
        AuditError,
        AuthenticationError,
        BaselineError,
        ChangesTrimmedError,
        ConfigurationError,
        DerivationOffError,
        DiscoveryError,
        FencedError,
        FrameTooBigError,
        InstepError,
        JournalDivergedError,
        JournalOffError,
        LeaseLostError,
        NoStoreError,
        NoStreamError,
        NotAlignedError,
        SinkError,
        SourceError,
        StoreUnavailableError,
        StoreVersionError,
        StreamGoneError,
        SweepHeldError,
        TlsError,
        TokenRefusedError,
        UnreachableError,
        UnreadableRecordsError,
        UnreadableStreamError,
    )
    from instep.model.batches import Batch, CommitResult, SweepStep
    from instep.model.cloud_events import CloudEvent
    from instep.model.entities import (
        Change,
        ChangeKind,
        JournalEnd,
        Quarantined,
        StoredEntity,
        StreamStatus,
    )
    from instep.model.freshness import Freshness
    from instep.model.messages import Message, StoredMessage
    from instep.model.ordering import supersedes, supersedes_sql
    from instep.model.position import Phase, Position
    from instep.model.records import Record, RecordChunk, RecordHeader, RecordType, Unreadable
    from instep.model.streams import Mode, Start, StreamInfo, StreamState, SweepEstimate
    from instep.ports.listener import Receipt, ReceiptOutcome
    from instep.ports.message_store import Handler, HandlerConnection
    from instep.ports.plugin import SinkPlugin, SourcePlugin, TargetPlugin
    from instep.ports.publish_target import PublishTarget
    from instep.ports.reader import SequenceStatus, StoreReader
    from instep.ports.sink import Sink
    from instep.ports.source import Feed, Source
    from instep.runtime.consumer import Consumer
    from instep.runtime.group import Group
    from instep.runtime.health import (
        ConsumerEvent,
        ConsumerState,
        Health,
        IntakeHealth,
        PairHealth,
        StreamHealth,
    )
    from instep.runtime.publisher import Publisher
    from instep.runtime.receiver import Receiver
    from instep.runtime.retry import Environment, process_error
    from instep.runtime.settings import ConsumerSettings, IntakeSettings, OnHandlerFailure
    from instep.runtime.streams.sequenced_feed import (
        NumberedRecords,
        SequencedFeed,
        SequencedFeedSettings,
    )
    from instep.runtime.subscription import Subscription
    from instep.sequencing.settings import SequencerSettings

__all__ = [
    "AlignmentSettings",
    "AuditError",
    "AuditReport",
    "AuthenticationError",
    "BaselineError",
    "Batch",
    "Change",
    "ChangeKind",
    "ChangesTrimmedError",
    "CloudEvent",
    "CommitResult",
    "ConfigurationError",
    "Consumer",
    "ConsumerEvent",
    "ConsumerSettings",
    "ConsumerState",
    "DerivationOffError",
    "DiscoveryError",
    "Environment",
    "Feed",
    "FencedError",
    "Fidelity",
    "Finding",
    "FrameTooBigError",
    "Freshness",
    "Group",
    "Handler",
    "HandlerConnection",
    "Health",
    "InstepError",
    "IntakeHealth",
    "IntakeSettings",
    "JournalDivergedError",
    "JournalEnd",
    "JournalOffError",
    "LeaseLostError",
    "Message",
    "Mode",
    "NoStoreError",
    "NoStreamError",
    "NotAlignedError",
    "NumberedRecords",
    "OnHandlerFailure",
    "PairHealth",
    "Phase",
    "Position",
    "PublishTarget",
    "Publisher",
    "Quarantined",
    "Receipt",
    "ReceiptOutcome",
    "Receiver",
    "Record",
    "RecordChunk",
    "RecordHeader",
    "RecordType",
    "Secret",
    "SequenceStatus",
    "SequencedFeed",
    "SequencedFeedSettings",
    "SequencerSettings",
    "Sink",
    "SinkError",
    "SinkPlugin",
    "Source",
    "SourceError",
    "SourcePlugin",
    "Start",
    "StoreReader",
    "StoreUnavailableError",
    "StoreVersionError",
    "StoredEntity",
    "StoredMessage",
    "StreamGoneError",
    "StreamHealth",
    "StreamInfo",
    "StreamState",
    "StreamStatus",
    "Subscription",
    "SweepEstimate",
    "SweepHeldError",
    "SweepStep",
    "TargetPlugin",
    "TlsError",
    "TokenRefusedError",
    "UnreachableError",
    "Unreadable",
    "UnreadableRecordsError",
    "UnreadableStreamError",
    "Verdict",
    "is_held",
    "open_reader",
    "process_error",
    "read_table",
    "shown_table",
    "supersedes",
    "supersedes_sql",
]
__version__ = "0.1.0"
if not TYPE_CHECKING:  # a type checker would believe every name of `__getattr__`
    __getattr__, __dir__ = lazy_exports(
        globals(),
        {
            "instep.alignment.absence": ("is_held",),
            "instep.alignment.audit": ("AuditReport", "Finding", "Verdict"),
            "instep.alignment.lag": ("Fidelity",),
            "instep.alignment.settings": ("AlignmentSettings",),
            "instep.config.options": ("read_table",),
            "instep.config.plugins": ("open_reader",),
            "instep.config.secret": ("Secret",),
            "instep.config.shown": ("shown_table",),
            "instep.errors": (
                "AuditError",
                "AuthenticationError",
                "BaselineError",
                "ChangesTrimmedError",
                "ConfigurationError",
                "DerivationOffError",
                "DiscoveryError",
                "FencedError",
                "FrameTooBigError",
                "InstepError",
                "JournalDivergedError",
                "JournalOffError",
                "LeaseLostError",
                "NoStoreError",
                "NoStreamError",
                "NotAlignedError",
                "SinkError",
                "SourceError",
                "StoreUnavailableError",
                "StoreVersionError",
                "StreamGoneError",
                "SweepHeldError",
                "TlsError",
                "TokenRefusedError",
                "UnreachableError",
                "UnreadableRecordsError",
                "UnreadableStreamError",
            ),
            "instep.model.batches": ("Batch", "CommitResult", "SweepStep"),
            "instep.model.cloud_events": ("CloudEvent",),
            "instep.model.entities": (
                "Change",
                "ChangeKind",
                "JournalEnd",
                "Quarantined",
                "StoredEntity",
                "StreamStatus",
            ),
            "instep.model.freshness": ("Freshness",),
            "instep.model.messages": ("Message", "StoredMessage"),
            "instep.model.ordering": ("supersedes", "supersedes_sql"),
            "instep.model.position": ("Phase", "Position"),
            "instep.model.records": (
                "Record",
                "RecordChunk",
                "RecordHeader",
                "RecordType",
                "Unreadable",
            ),
            "instep.model.streams": ("Mode", "Start", "StreamInfo", "StreamState", "SweepEstimate"),
            "instep.ports.listener": ("Receipt", "ReceiptOutcome"),
            "instep.ports.message_store": ("Handler", "HandlerConnection"),
            "instep.ports.plugin": ("SinkPlugin", "SourcePlugin", "TargetPlugin"),
            "instep.ports.publish_target": ("PublishTarget",),
            "instep.ports.reader": ("SequenceStatus", "StoreReader"),
            "instep.ports.sink": ("Sink",),
            "instep.ports.source": ("Feed", "Source"),
            "instep.runtime.consumer": ("Consumer",),
            "instep.runtime.group": ("Group",),
            "instep.runtime.health": (
                "ConsumerEvent",
                "ConsumerState",
                "Health",
                "IntakeHealth",
                "PairHealth",
                "StreamHealth",
            ),
            "instep.runtime.publisher": ("Publisher",),
            "instep.runtime.receiver": ("Receiver",),
            "instep.runtime.retry": ("Environment", "process_error"),
            "instep.runtime.settings": ("ConsumerSettings", "IntakeSettings", "OnHandlerFailure"),
            "instep.runtime.streams.sequenced_feed": (
                "NumberedRecords",
                "SequencedFeed",
                "SequencedFeedSettings",
            ),
            "instep.runtime.subscription": ("Subscription",),
            "instep.sequencing.settings": ("SequencerSettings",),
        },
    )

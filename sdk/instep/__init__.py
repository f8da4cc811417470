"""instep keeps a consumer's store in step with a provider.

Records of a notification stream are put in order, freed of duplicates, compared with what is
stored and committed together with the position they came from; what the provider no longer states
is found and removed. `Consumer` is where to begin.
"""

from typing import TYPE_CHECKING

from instep.model.lazy_exports import lazy_exports

if TYPE_CHECKING:
    from instep.alignment.audit import AuditReport, Finding, Verdict
    from instep.alignment.lag import Fidelity
    from instep.alignment.settings import AlignmentSettings
    from instep.errors import (
        AuditError,
        ConfigurationError,
        FencedError,
        InstepError,
        LeaseLostError,
        SinkError,
        SourceError,
        StoreUnavailableError,
        SweepHeldError,
        TokenRefusedError,
    )
    from instep.model.entities import Change, ChangeKind, Quarantined, StoredEntity, StreamStatus
    from instep.model.messages import Message, StoredMessage
    from instep.model.position import Phase, Position
    from instep.model.records import Record, RecordType
    from instep.model.streams import Mode, StreamInfo
    from instep.ports.message_store import Handler, HandlerConnection
    from instep.ports.reader import SequenceStatus
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
    from instep.runtime.subscription import Subscription
    from instep.sequencing.settings import SequencerSettings

__all__ = [
    "AlignmentSettings",
    "AuditError",
    "AuditReport",
    "Change",
    "ChangeKind",
    "ConfigurationError",
    "Consumer",
    "ConsumerEvent",
    "ConsumerSettings",
    "ConsumerState",
    "Environment",
    "FencedError",
    "Fidelity",
    "Finding",
    "Group",
    "Handler",
    "HandlerConnection",
    "Health",
    "InstepError",
    "IntakeHealth",
    "IntakeSettings",
    "LeaseLostError",
    "Message",
    "Mode",
    "OnHandlerFailure",
    "PairHealth",
    "Phase",
    "Position",
    "Publisher",
    "Quarantined",
    "Receiver",
    "Record",
    "RecordType",
    "SequenceStatus",
    "SequencerSettings",
    "SinkError",
    "SourceError",
    "StoreUnavailableError",
    "StoredEntity",
    "StoredMessage",
    "StreamHealth",
    "StreamInfo",
    "StreamStatus",
    "Subscription",
    "SweepHeldError",
    "TokenRefusedError",
    "Verdict",
    "process_error",
]
__version__ = "0.1.0"
__getattr__, __dir__ = lazy_exports(
    globals(),
    {
        "instep.alignment.audit": ("AuditReport", "Finding", "Verdict"),
        "instep.alignment.lag": ("Fidelity",),
        "instep.alignment.settings": ("AlignmentSettings",),
        "instep.errors": (
            "AuditError",
            "ConfigurationError",
            "FencedError",
            "InstepError",
            "LeaseLostError",
            "SinkError",
            "SourceError",
            "StoreUnavailableError",
            "SweepHeldError",
            "TokenRefusedError",
        ),
        "instep.model.entities": (
            "Change",
            "ChangeKind",
            "Quarantined",
            "StoredEntity",
            "StreamStatus",
        ),
        "instep.model.messages": ("Message", "StoredMessage"),
        "instep.model.position": ("Phase", "Position"),
        "instep.model.records": ("Record", "RecordType"),
        "instep.model.streams": ("Mode", "StreamInfo"),
        "instep.ports.message_store": ("Handler", "HandlerConnection"),
        "instep.ports.reader": ("SequenceStatus",),
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
        "instep.runtime.subscription": ("Subscription",),
        "instep.sequencing.settings": ("SequencerSettings",),
    },
)

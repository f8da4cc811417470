"""instep keeps a consumer's store in step with a provider.

Records of a notification stream are put in order, freed of duplicates, compared with what is
stored and committed together with the position they came from; what the provider no longer states
is found and removed. `Consumer` is where to begin.
"""

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
from instep.runtime.receiver import Receiver
from instep.runtime.retry import Environment, process_error
from instep.runtime.settings import ConsumerSettings, IntakeSettings, OnHandlerFailure
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
    "SweepHeldError",
    "TokenRefusedError",
    "Verdict",
    "process_error",
]
__version__ = "0.1.0"

"""instep keeps a consumer's store in step with a provider.

Records of a notification stream are put in order, freed of duplicates, compared with what is
stored and committed together with the position they came from; what the provider no longer states
is found and removed. `Consumer` is where to begin.
"""

from instep.alignment import Alignment
from instep.audit import AuditReport, Finding, Verdict
from instep.consumer import Consumer
from instep.errors import (
    AuditError,
    AuthenticationError,
    BaselineError,
    ConfigurationError,
    DiscoveryError,
    FencedError,
    FrameTooBigError,
    InstepError,
    JournalOffError,
    LeaseLostError,
    NoStreamError,
    SinkError,
    SourceError,
    StoreUnavailableError,
    StoreVersionError,
    StreamGoneError,
    SweepHeldError,
    TlsError,
    TokenRefusedError,
    UnreachableError,
)
from instep.fidelity import Zone
from instep.group import Group
from instep.health import (
    ConsumerEvent,
    ConsumerState,
    Health,
    PairHealth,
    ReceptionHealth,
    StreamHealth,
)
from instep.lease import Role
from instep.message_reading import SequenceStatus, StoredMessage
from instep.message_store import KeepsMessages, MessageStore
from instep.messages import (
    Handler,
    HandlerConnection,
    Listener,
    Message,
    OutboxStore,
    Receipt,
    ReceiptOutcome,
    Reception,
)
from instep.outbox import Outbox, OutboxSettings, OutboxState
from instep.ports import (
    Census,
    Feed,
    Mode,
    Sink,
    SinkPlugin,
    Source,
    SourcePlugin,
    Start,
    StreamInfo,
)
from instep.position import Phase, Position, Reference
from instep.ranges import Ranges
from instep.reading import (
    Change,
    ChangeKind,
    Quarantined,
    StoredEntity,
    StoreReader,
    StreamStatus,
)
from instep.received_orders import GapDetector
from instep.receiver import Receiver
from instep.records import (
    Batch,
    CommitResult,
    Delivery,
    Kind,
    Record,
    StreamState,
    SweepStep,
    Unreadable,
)
from instep.retry import Environment, process_error
from instep.sequence_effects import (
    AskResend,
    Numbered,
    Outcome,
    RealignSequence,
    ReportFault,
    ReportLoss,
    SequenceEffect,
    SequenceFailed,
)
from instep.sequence_settings import (
    FaultPolicy,
    GapPolicy,
    Incomplete,
    LastResort,
    SequencerSettings,
)
from instep.sequence_state import SequencerState
from instep.sequence_transitions import Refusal, SequencePhase, SequenceRefusedError
from instep.sequencer import Sequencer
from instep.settings import AlignmentSettings, ConsumerSettings, OnHandlerFailure, ReceptionSettings

__all__ = [
    "Alignment",
    "AlignmentSettings",
    "AskResend",
    "AuditError",
    "AuditReport",
    "AuthenticationError",
    "BaselineError",
    "Batch",
    "Census",
    "Change",
    "ChangeKind",
    "CommitResult",
    "ConfigurationError",
    "Consumer",
    "ConsumerEvent",
    "ConsumerSettings",
    "ConsumerState",
    "Delivery",
    "DiscoveryError",
    "Environment",
    "FaultPolicy",
    "Feed",
    "FencedError",
    "Finding",
    "FrameTooBigError",
    "GapDetector",
    "GapPolicy",
    "Group",
    "Handler",
    "HandlerConnection",
    "Health",
    "Incomplete",
    "InstepError",
    "JournalOffError",
    "KeepsMessages",
    "Kind",
    "LastResort",
    "LeaseLostError",
    "Listener",
    "Message",
    "MessageStore",
    "Mode",
    "NoStreamError",
    "Numbered",
    "OnHandlerFailure",
    "Outbox",
    "OutboxSettings",
    "OutboxState",
    "OutboxStore",
    "Outcome",
    "PairHealth",
    "Phase",
    "Position",
    "Quarantined",
    "Ranges",
    "RealignSequence",
    "Receipt",
    "ReceiptOutcome",
    "Receiver",
    "Reception",
    "ReceptionHealth",
    "ReceptionSettings",
    "Record",
    "Reference",
    "Refusal",
    "ReportFault",
    "ReportLoss",
    "Role",
    "SequenceEffect",
    "SequenceFailed",
    "SequencePhase",
    "SequenceRefusedError",
    "SequenceStatus",
    "Sequencer",
    "SequencerSettings",
    "SequencerState",
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
    "SweepHeldError",
    "SweepStep",
    "TlsError",
    "TokenRefusedError",
    "UnreachableError",
    "Unreadable",
    "Verdict",
    "Zone",
    "process_error",
]
__version__ = "0.1.0"

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
from instep.health import ConsumerEvent, ConsumerState, Health, PairHealth, StreamHealth
from instep.lease import Role
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
from instep.reading import (
    Change,
    ChangeKind,
    Quarantined,
    StoredEntity,
    StoreReader,
    StreamStatus,
)
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
from instep.settings import AlignmentSettings, ConsumerSettings

__all__ = [
    "Alignment",
    "AlignmentSettings",
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
    "Feed",
    "FencedError",
    "Finding",
    "FrameTooBigError",
    "Group",
    "Health",
    "InstepError",
    "JournalOffError",
    "Kind",
    "LeaseLostError",
    "Mode",
    "NoStreamError",
    "PairHealth",
    "Phase",
    "Position",
    "Quarantined",
    "Record",
    "Reference",
    "Role",
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

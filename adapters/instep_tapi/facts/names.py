"""The names of TAPI streaming: identities, object classes, and the spellings met in the field.

TR-548 calls the YANG definitive (3.7); providers and its own examples differ from it. An identity
may be written ``tapi-streaming:RECORD_TYPE_DELETE``, ``RECORD_TYPE_DELETE`` or ``DELETE``, with
blanks around it or with hyphens. The tables here are used by the reader (liberal) and by the
provider (strict).
"""

from collections import Counter
from enum import StrEnum
from functools import lru_cache
from typing import Final

from instep_tapi.facts.classes import CLASS_MODEL


class LogRecordType(StrEnum):
    """What a log record states about its entity (TR-548 3.12; v3.2 5.2)."""

    CREATE_UPDATE = "CREATE_UPDATE"
    DELETE = "DELETE"
    TOMBSTONE = "TOMBSTONE"
    # TAPI 2.4 and later.
    CREATE = "CREATE"
    UPDATE = "UPDATE"
    CHANGE = "CHANGE"
    INFORMATION = "INFORMATION"
    """It states no entity."""

    @property
    def ends(self) -> bool:
        """Whether the entity is gone."""
        return self in (LogRecordType.DELETE, LogRecordType.TOMBSTONE)


class LogStorageStrategy(StrEnum):
    """What a log keeps (TR-548 3.8, 3.19)."""

    COMPACTED = "COMPACTED"
    TRUNCATED = "TRUNCATED"
    FULL_HISTORY = "FULL_HISTORY"
    FULL_HISTORY_WITH_PERIODIC_BASELINE = "FULL_HISTORY_WITH_PERIODIC_BASELINE"


class LogRecordStrategy(StrEnum):
    """When and how wholly an entity is stated (TR-548 3.9)."""

    WHOLE_ENTITY_ON_CHANGE = "WHOLE_ENTITY_ON_CHANGE"
    CHANGE_ONLY = "CHANGE_ONLY"
    WHOLE_ENTITY_PERIODIC = "WHOLE_ENTITY_PERIODIC"


class StreamState(StrEnum):
    """Whether an available stream sends records (TR-548 3.7.1)."""

    ALIGNING = "ALIGNING"
    ACTIVE = "ACTIVE"
    PAUSED = "PAUSED"
    TERMINATED = "TERMINATED"


class Spread(StrEnum):
    """How the event time stamp relates to the event (TR-548 3.13)."""

    AT = "AT"
    BEFORE = "BEFORE"
    AFTER = "AFTER"
    BETWEEN = "BETWEEN"


class SourcePrecision(StrEnum):
    """How far the clock behind an event time can be trusted."""

    UNKNOWN = "UNKNOWN"
    FREE_RUNNING = "FREE_RUNNING"
    SYNCHRONIZED = "SYNCHRONIZED"


class AlarmDetectorState(StrEnum):
    """The state of an alarm's detector (TR-548 4.4)."""

    ACTIVE = "ACTIVE"
    INTERMITTENT = "INTERMITTENT"
    CLEAR = "CLEAR"


class ConditionDetectorType(StrEnum):
    """What a condition detector detects (TR-548 4.5)."""

    ALARM_DETECTOR = "ALARM_DETECTOR"
    EVENT_DETECTOR = "EVENT_DETECTOR"


STREAMING_MODULE: Final = "tapi-streaming"
MAX_NAME_CHARS: Final = 128
"""Longest name of a class, a record-type or a member that names a class."""
MAX_TEXT_CHARS: Final = 4_096
"""Longest token, entity-key or uuid: it becomes a key of the store and a part of a URL."""

# The enumeration of each identity base, keyed by the prefix that its YANG identities carry.
IDENTITIES: Final[dict[str, type[StrEnum]]] = {
    "RECORD_TYPE": LogRecordType,
    "LOG_STORAGE_STRATEGY": LogStorageStrategy,
    "LOG_RECORD_STRATEGY": LogRecordStrategy,
    "STREAM_STATE": StreamState,
    "SPREAD": Spread,
    "SOURCE_PRECISION": SourcePrecision,
    "ALARM_DETECTOR_STATE": AlarmDetectorState,
    "CONDITION_DETECTOR_TYPE": ConditionDetectorType,
}
IDENTITY_PREFIXES: Final = (
    *(f"{base}_" for base in IDENTITIES),
    # From TAPI 2.4 on, for what 2.1.3 leaves a free string ("websockets").
    *("CONNECTION_PROTOCOL_", "ENCODING_FORMAT_"),
    # tapi-fm of TAPI 2.4 and later.
    *("SIMPLE_DETECTOR_STATE_", "PERCEIVED_SEVERITY_TYPE_", "PERCEIVED_SEVERITY_"),
    # An enumeration in 2.1.3.
    "CAPACITY_UNIT_",
)

CONDITION_DETECTOR: Final = "CONDITION_DETECTOR"
ANY_CLASS: Final = "ANY_CLASS"

OBJECT_CLASSES: Final = frozenset(CLASS_MODEL.places)
"""The classes of both editions."""
CLASSES_WITHOUT_CONTAINER: Final = frozenset(
    name for name, one in CLASS_MODEL.places.items() if not one.container
)
"""Classes that have no container in log-record-body."""
# Members of the context tree that hold entities; some have another name than in the record body.
_HELD: Final = {
    (member, name)
    for place in CLASS_MODEL.places.values()
    for member, name in place.contains.items()
}
_SEVERAL: Final = Counter(member for member, _ in _HELD)
_CLASSES: Final = {
    "context": "TAPI_CONTEXT",
    # An `end-point` may be one of four classes.
    **{member: name for member, name in _HELD if _SEVERAL[member] == 1},
    **{place.container: name for name, place in CLASS_MODEL.places.items() if place.container},
}


@lru_cache(maxsize=4096)
def short_identity(text: str) -> str:
    """The short name of an identity, whichever of the spellings of the field it came in.

    ``tapi-streaming:RECORD_TYPE_DELETE``, ``RECORD_TYPE_DELETE``, `` DELETE`` all give ``DELETE``;
    ``FULL-HISTORY`` gives ``FULL_HISTORY``. A name that is not known is returned cleaned (no module
    prefix, no blanks around it) and is never an error: it is kept and reported, not dropped.
    """
    name = text.strip().rpartition(":")[2].strip().replace("-", "_")
    for prefix in IDENTITY_PREFIXES:
        if name.startswith(prefix):
            return name[len(prefix) :]
    return name


def class_named(identity: str) -> str:
    """The class of a record-content in any spelling; from TAPI 2.4 on classes are identities, and
    some have other names than in 2.1.3, which they get here.
    """
    name = short_identity(identity).rpartition("OBJECT_TYPE_")[2]
    return CLASS_MODEL.spellings.get(name, name)


@lru_cache(maxsize=256, typed=True)  # ACTIVE is a name in two enumerations, and equal in both
def long_identity(member: StrEnum, *, prefixed: bool = True) -> str:
    """The identity as the YANG names it, ``tapi-streaming:RECORD_TYPE_DELETE`` or without its
    module.
    """
    for base, enum in IDENTITIES.items():
        if isinstance(member, enum):
            name = f"{base}_{member.value}"
            return f"{STREAMING_MODULE}:{name}" if prefixed else name
    raise TypeError(f"{member!r} is not a member of a TAPI streaming identity")


@lru_cache(maxsize=4096)
def container_of(class_name: str) -> str | None:
    """The member of log-record-body that holds an entity of this class; None where there is none.

    A class that no edition knows has the kebab form of its name, as the known ones have.
    """
    place = CLASS_MODEL.places.get(class_name)
    return class_name.lower().replace("_", "-") if place is None else place.container or None


def class_of(container: str) -> str:
    """The object class whose entities are held by this member, of log-record-body or of the
    context tree.

    Raises `ValueError` for a member that is too long, or holds a NUL, to be a name.
    """
    if len(container) > MAX_NAME_CHARS or "\0" in container:
        raise ValueError(
            f"a member of {len(container)} characters is no class's: {container[:64]!r}"
        )
    return _class_of(container)


@lru_cache(maxsize=4096)
def _class_of(container: str) -> str:
    name = strip_module(container)
    return _CLASSES.get(name, name.upper().replace("-", "_"))


def strip_module(member: str) -> str:
    """A JSON member's name without its module prefix (RFC 7951 4)."""
    return member.rpartition(":")[2]

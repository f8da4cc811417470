"""Data: records, batches, columns, positions, streams, entities. It has no behaviour but to be
read, and imports `instep.errors` only.
"""

from typing import TYPE_CHECKING

from instep.model.lazy_exports import lazy_exports

if TYPE_CHECKING:
    from instep.model.batches import Batch, CommitResult, SweepStep
    from instep.model.entities import JournalEnd
    from instep.model.freshness import Freshness, FreshnessState, StreamReport
    from instep.model.holds import Hold
    from instep.model.lookups import EntityProof, LookupAnswer, LookupVerdict
    from instep.model.messages import Attachment, MessageHeader
    from instep.model.position import SweepBarrier
    from instep.model.ranges import Ranges
    from instep.model.records import DecodedRecords, RecordChunk, RecordHeader, Unreadable
    from instep.model.streams import Retirement, Start, StreamState, SweepEstimate

__all__ = [
    "Attachment",
    "Batch",
    "CommitResult",
    "DecodedRecords",
    "EntityProof",
    "Freshness",
    "FreshnessState",
    "Hold",
    "JournalEnd",
    "LookupAnswer",
    "LookupVerdict",
    "MessageHeader",
    "Ranges",
    "RecordChunk",
    "RecordHeader",
    "Retirement",
    "Start",
    "StreamReport",
    "StreamState",
    "SweepBarrier",
    "SweepEstimate",
    "SweepStep",
    "Unreadable",
]
if not TYPE_CHECKING:  # a type checker would believe every name of `__getattr__`
    __getattr__, __dir__ = lazy_exports(
        globals(),
        {
            "instep.model.batches": (
                "Batch",
                "CommitResult",
                "SweepStep",
            ),
            "instep.model.holds": ("Hold",),
            "instep.model.lookups": ("EntityProof", "LookupAnswer", "LookupVerdict"),
            "instep.model.entities": ("JournalEnd",),
            "instep.model.freshness": ("Freshness", "FreshnessState", "StreamReport"),
            "instep.model.messages": ("Attachment", "MessageHeader"),
            "instep.model.position": ("SweepBarrier",),
            "instep.model.ranges": ("Ranges",),
            "instep.model.records": (
                "DecodedRecords",
                "RecordChunk",
                "RecordHeader",
                "Unreadable",
            ),
            "instep.model.streams": (
                "Retirement",
                "Start",
                "StreamState",
                "SweepEstimate",
            ),
        },
    )

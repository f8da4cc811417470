"""Data: records, batches, columns, positions, streams, entities. No behaviour beyond reading it;
imports `instep.errors` only.
"""

from instep.model.alarms import AlarmEpisode
from instep.model.batches import Batch, CommitResult, SweepStep
from instep.model.measurements import Measurement
from instep.model.messages import MessageHeader
from instep.model.position import SweepBarrier
from instep.model.ranges import Ranges
from instep.model.records import DecodedRecords, RecordChunk, RecordHeader, Unreadable
from instep.model.streams import Start, StreamState, SweepEstimate

__all__ = [
    "AlarmEpisode",
    "Batch",
    "CommitResult",
    "DecodedRecords",
    "Measurement",
    "MessageHeader",
    "Ranges",
    "RecordChunk",
    "RecordHeader",
    "Start",
    "StreamState",
    "SweepBarrier",
    "SweepEstimate",
    "SweepStep",
    "Unreadable",
]

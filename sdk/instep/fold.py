"""Which of two statements is newer (A3), and one statement a key of a batch."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import TypeVar

import msgspec

from instep.records import Delivery, Statement
from instep.stretch import Folded, HeaderStretch, RecordStretch, Stretch, last_indexes

__all__ = ["fold", "folded", "last_words", "newer"]

S = TypeVar("S", bound=Statement)


def newer(stored: Statement, record: Statement) -> bool:
    """Whether `stored` lies after `record` in the log, both being of one lineage.

    Offsets decide where both are known in one partition, append times else.
    """
    if stored.offset >= 0 and record.offset >= 0 and stored.partition == record.partition:
        return stored.offset > record.offset
    return stored.appended_at_us > record.appended_at_us


def fold(records: Iterable[S]) -> dict[str, S]:
    """The statement that counts for each key: the last, unless it is older than the one before it.

    Committing the fold leaves the store as committing record by record would, in one write a key.
    """
    folded: dict[str, S] = {}
    get = folded.get
    for record in records:
        key = record.key
        last = get(key)
        if (
            last is None
            # The usual case, told without a call.
            or (record.offset > last.offset >= 0 and record.partition == last.partition)
            or not newer(last, record)
        ):
            folded[key] = record
    return folded


def last_words(records: Sequence[Statement]) -> Sequence[Statement]:
    """The statements that `fold` leaves."""
    return records.last_words() if isinstance(records, Stretch) else list(fold(records).values())


def folded(delivery: Delivery) -> Delivery:
    """The same, its last words opened and the rest let go, where that is safe: as long as it is in
    the processor's cache, that costs a fraction of what it does once a large batch has piled up.

    Safe is a stretch of whole statements whose last words can all be read: where one cannot, those
    before it may be asked for.
    """
    stretch = delivery.records
    if not isinstance(stretch, HeaderStretch) or not delivery.whole:
        return delivery
    indexes = last_indexes(stretch.keys)
    found = delivery.opened(stretch.picked(indexes))
    if not isinstance(found.records, RecordStretch):
        return delivery
    return msgspec.structs.replace(
        delivery,
        records=Folded(stretch, found.records, indexes),
        open=None,
        deviations=dict(Counter(delivery.deviations) + Counter(found.deviations)),
    )

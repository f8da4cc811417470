"""The order in which the parts of an entity count."""

from __future__ import annotations

import msgspec

from instep.alignment.change_only import ENDED_PARTS, PartialEntity
from instep.model.position import Position
from instep.model.records import Record, RecordType

_LINEAGE_1 = Position(attempt=1, lineage=1)
_LINEAGE_2 = Position(attempt=2, lineage=2)


def _part(key: str, at_us: int, partition: str, offset: int) -> Record:
    """The change of a part; its content names the writer."""
    body = msgspec.json.encode({"last": key})
    return Record(
        "s", key, RecordType.CREATE_UPDATE, "t", at_us, partition, offset, "NODE", body, whole=False
    )


def _last(whole: Record | None) -> str:
    assert whole is not None
    last: str = msgspec.json.decode(whole.body)["last"]
    return last


def test_a3_a_part_counts_after_an_older_one_of_its_partition_though_times_go_in_a_circle() -> None:
    entity = PartialEntity("e", [])
    # By offsets b lies after a; by append times a after c, and c after b.
    entity.state(_part("a", 30, "0", 1), _LINEAGE_1)
    entity.state(_part("c", 20, "1", 1), _LINEAGE_1)
    whole = entity.state(_part("b", 10, "0", 2), _LINEAGE_1)
    assert _last(whole) == "b"
    assert whole is not None
    assert (whole.partition, whole.offset) == ("0", 2)
    again = PartialEntity("e", list(entity.parts.values()))
    assert again.body() == entity.body()


def test_a3_append_times_of_a_new_log_do_not_keep_a_part_in_front() -> None:
    entity = PartialEntity("e", [])
    entity.state(_part("a", 900, "0", 9), _LINEAGE_1)
    assert _last(entity.state(_part("b", 5, "0", 1), _LINEAGE_2)) == "b"


def test_a_part_that_is_stated_again_counts_where_it_stands_in_the_log() -> None:
    entity = PartialEntity("e", [])
    entity.state(_part("a", 10, "0", 1), _LINEAGE_1)
    entity.state(_part("b", 20, "0", 2), _LINEAGE_1)
    assert _last(entity.state(_part("a", 10, "0", 1), _LINEAGE_1)) == "b"
    assert _last(entity.state(_part("a", 30, "0", 3), _LINEAGE_1)) == "a"


def test_parts_that_a_store_kept_in_another_order_are_put_in_the_order_of_the_log() -> None:
    entity = PartialEntity("e", [])
    entity.state(_part("a", 10, "0", 1), _LINEAGE_1)
    entity.state(_part("b", 20, "0", 2), _LINEAGE_1)
    kept = PartialEntity("e", list(reversed(entity.parts.values())))
    assert kept.body() == entity.body()


def test_numbers_stay_as_the_provider_wrote_them() -> None:
    numbers = b"[193.100000000000000001,1.10,1e400,-0.0,123456789012345678901234567890]"
    entity = PartialEntity("e", [])
    base = msgspec.structs.replace(
        _part("e", 10, "0", 1), body=b'{"kept":%b,"cut":[{"uuid":"u","f":1.50}]}' % numbers
    )
    entity.state(base, _LINEAGE_1)
    merged = msgspec.structs.replace(_part("e/x", 20, "0", 2), body=b'{"new":{"f":%b}}' % numbers)
    whole = entity.state(merged, _LINEAGE_1)
    assert whole is not None
    assert whole.body == b'{"kept":%b,"cut":[{"uuid":"u","f":1.50}],"new":{"f":%b}}' % (
        numbers,
        numbers,
    )
    end = msgspec.structs.replace(_part("e/cut/u", 30, "0", 3), body=b"", ends=True)
    left = entity.end_part(end, _LINEAGE_1)
    assert left is not None
    assert left.body == b'{"kept":%b,"cut":[],"new":{"f":%b}}' % (numbers, numbers)


def test_few_ends_of_parts_are_remembered_and_those_that_came_last() -> None:
    entity = PartialEntity("e", [])
    entity.state(_part("e", 1, "0", 1), _LINEAGE_1)
    for at in range(2, 4 * ENDED_PARTS, 2):
        entity.state(_part(f"e/{at}", at, "0", at), _LINEAGE_1)
        end = msgspec.structs.replace(_part(f"e/{at}", at, "0", at + 1), body=b"", ends=True)
        entity.end_part(end, _LINEAGE_1)
    assert [*entity.parts] == [
        "e",
        *(f"e/{at}" for at in range(2 * ENDED_PARTS, 4 * ENDED_PARTS, 2)),
    ]
    last = _part(f"e/{4 * ENDED_PARTS - 2}", 1, "0", 1)
    assert entity.state(last, _LINEAGE_1) is None

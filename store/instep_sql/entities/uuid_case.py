"""Finds what is stored under a uuid that is spelled in another case (RFC 4122 3)."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from sqlalchemy import Connection, text

from instep.model.entities import folded_uuid, is_uuid
from instep_sql.engine.dialect import Dialect, json_array
from instep_sql.entities.streams import StreamRow, UuidCase

__all__ = ["other_spellings", "spellings"]

_SHAPE: Final = "uuid LIKE '________-____-____-____-____________'"
_CASES: Final = text(f"""
    SELECT DISTINCT CASE WHEN uuid = upper(uuid) THEN 0 ELSE 1 END AS mixed FROM instep_entity
    WHERE stream_no = :no AND uuid <> lower(uuid) AND {_SHAPE}
""")
_MIXED: Final = f"""
    SELECT uuid FROM instep_entity
    WHERE stream_no = :no AND uuid <> lower(uuid) AND {_SHAPE} AND lower(uuid) IN {{members}}
"""


def spellings(name: str) -> set[str]:
    """How a name may be spelled in the store: as it is and, where it is a uuid, in either case."""
    return {name, name.lower(), name.upper()} if is_uuid(name) else {name}


def other_spellings(
    connection: Connection, dialect: Dialect, stream: StreamRow, names: Collection[str]
) -> set[str]:
    """How these uuids may be spelled in the store: the case does not matter (RFC 4122 3). Asked for
    only where some are not in lower case, which is seldom; those in both cases are looked for one
    by one.
    """
    if stream.uuid_cases is None:
        found = connection.execute(_CASES, {"no": stream.no}).scalars()
        stream.uuid_cases = {UuidCase.MIXED if mixed else UuidCase.UPPER for mixed in found}
    for name in names:
        if folded_uuid(name) != name:
            stream.uuid_cases.add(UuidCase.UPPER if name == name.upper() else UuidCase.MIXED)
    if not stream.uuid_cases:
        return set()
    spelled = set().union(*map(spellings, names))
    if UuidCase.MIXED in stream.uuid_cases:
        values = {"no": stream.no, "names": json_array(set(map(folded_uuid, names)))}
        query = _MIXED.format(members=dialect.members("names"))
        spelled.update(row[0] for row in dialect.execute(connection, query, values))
    return spelled

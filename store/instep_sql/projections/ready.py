"""The ready tables of plug-ins as projections."""

from __future__ import annotations

from functools import cache
from typing import Final

from sqlalchemy import BigInteger, Boolean, Column, Index, MetaData, Table, Text

from instep.config.derivations import ready_tables
from instep_sql.projections.projection import ENTITY_ID, Projection

__all__ = ["ready_projection"]

_METADATA: Final = MetaData()


@cache
def ready_projection(name: str) -> Projection:
    """The projection of this name, which the options have checked."""
    ready = ready_tables()[name]
    columns = [Column(one, Boolean() if one in ready.flags else Text()) for one in ready.columns]
    table = Table(
        name,
        _METADATA,
        Column(ENTITY_ID, BigInteger, primary_key=True, autoincrement=False),
        *columns,
        *(Index(f"{name}_{column}", column) for column in ready.indexed),
    )
    return Projection(table, {ready.entity_class: ready.columns})

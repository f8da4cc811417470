"""Foreign keys to the tables of projections: which can hold, and in which order rows are written.

The store replaces the rows of an entity, and entities come in any order. So a table may refer only
to the row of the same entity in the table of another projection, and its rows go with that row.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from graphlib import CycleError, TopologicalSorter

from sqlalchemy import Connection, inspect
from sqlalchemy.engine.interfaces import ReflectedForeignKeyConstraint

from instep.errors import ConfigurationError
from instep_sql.engine.dialect import Dialect
from instep_sql.projections.projection import ENTITY_ID, Projection

__all__ = ["check", "children_of", "in_order"]


def in_order(projections: Iterable[Projection]) -> tuple[Projection, ...]:
    """Each after those whose tables it refers to. Raises `ConfigurationError` for a circle, and for
    two that fill one table.
    """
    by_name: dict[str, Projection] = {}
    for one in projections:
        if by_name.setdefault(str(one.name), one) is not one:
            raise ConfigurationError(
                f"two projections fill the table {one.name!r}",
                where="projections",
                hint="write one with the classes of both",
            )
    graph = {name: one.parents & by_name.keys() for name, one in by_name.items()}
    try:
        return tuple(by_name[name] for name in TopologicalSorter(graph).static_order())
    except CycleError as error:
        raise ConfigurationError(
            f"the tables refer to each other in a circle: {', '.join(error.args[1])}",
            where="projections",
            hint="leave out one of the foreign keys",
        ) from None


def children_of(projection: Projection, projections: Iterable[Projection]) -> list[Projection]:
    """Those whose tables refer to the table of this one."""
    return [one for one in projections if projection.name in one.parents]


def check(
    connection: Connection,
    dialect: Dialect,
    projections: Sequence[Projection],
    written: Iterable[str],
) -> None:
    """Raise `ConfigurationError` for a foreign key to the table of a projection that would refuse a
    commit. `written`: the tables of all projections, of other processes too.
    """
    names = {str(one.name) for one in projections}
    children = set(written)
    found = inspect(connection).get_multi_foreign_keys()
    for (_, table), keys in sorted(found.items()):
        for key in keys:
            parent = key["referred_table"]
            if parent not in names:
                continue
            problem, hint = _problem(table, key, is_child=table in children)
            if problem:
                raise ConfigurationError(
                    f"the foreign key from {table!r} to {parent!r} {problem}",
                    where=f"{dialect.where}: the projection {parent!r}",
                    hint=hint,
                )


def _problem(table: str, key: ReflectedForeignKeyConstraint, *, is_child: bool) -> tuple[str, str]:
    """What is wrong with it and what to do; empty if it can hold."""
    parent, options = key["referred_table"], key.get("options", {})
    if not is_child:
        return (
            "would keep the store from replacing a row",
            f"leave it out, and let {table!r} keep the uuid of the entity",
        )
    columns = (key["constrained_columns"], key["referred_columns"])
    if table == parent or columns != ([ENTITY_ID], [ENTITY_ID]):
        return (
            "leads to another entity, and entities come in any order",
            "leave it out, and join by uuid",
        )
    if (options.get("ondelete") or "").upper() != "CASCADE":
        return (
            "would keep the store from replacing a row",
            f'write ForeignKey("{parent}.entity_id", ondelete="CASCADE"), and migrate the table',
        )
    if (options.get("initially") or "").upper() == "DEFERRED":
        return (
            "is checked at the end of the commit, and would refuse it as a whole",
            "leave out INITIALLY DEFERRED: the store writes the rows in the order of the keys",
        )
    return "", ""

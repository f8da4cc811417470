"""Triggers of PostgreSQL: one run for all rows of a statement."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from instep_sql.engine.triggers import Trigger, TriggerEvent

__all__ = ["create_sql", "drop_sql"]

_TABLES: Final = {
    TriggerEvent.INSERT: "NEW TABLE AS written",
    TriggerEvent.UPDATE: "OLD TABLE AS former NEW TABLE AS written",
    TriggerEvent.DELETE: "OLD TABLE AS former",
}


def create_sql(trigger: Trigger) -> Iterator[str]:
    """The statements that create it, and its function."""
    rows, new, old = "", "written", "former"
    if trigger.event is TriggerEvent.UPDATE:
        # No join of the two tables: without statistics it is planned as a nested loop. A part of
        # WITH that a statement does not name is not computed.
        read = ", ".join(dict.fromkeys((*trigger.columns, *trigger.watched)))
        now, before = f"SELECT {read} FROM {new}", f"SELECT {read} FROM {old}"
        new, old = "changed", "replaced"
        rows = f"WITH {new} AS ({now} EXCEPT {before}), {old} AS ({before} EXCEPT {now}) "
    body = "".join(f"{rows}{statement};\n" for statement in trigger.filled(new, old))
    yield f"""
        CREATE OR REPLACE FUNCTION {trigger.name}() RETURNS trigger
        LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
        BEGIN
            {body}
            RETURN NULL;
        END $$
    """
    yield f"""
        CREATE TRIGGER {trigger.name} AFTER {trigger.event} ON {trigger.table}
        REFERENCING {_TABLES[trigger.event]}
        FOR EACH STATEMENT EXECUTE FUNCTION {trigger.name}()
    """


def drop_sql(trigger: Trigger) -> Iterator[str]:
    """The statements that drop both, if they exist."""
    yield f"DROP TRIGGER IF EXISTS {trigger.name} ON {trigger.table}"
    yield f"DROP FUNCTION IF EXISTS {trigger.name}()"

"""Triggers of SQLite: one run for each row."""

from __future__ import annotations

from instep_sql.engine.triggers import Trigger, TriggerEvent

__all__ = ["create_sql"]


def create_sql(trigger: Trigger) -> str:
    """The statement that creates it."""
    new, old = (_relation(row, trigger.columns) for row in ("NEW", "OLD"))
    body = "".join(f"{statement};\n" for statement in trigger.filled(new, old))
    event, condition = str(trigger.event), ""
    if trigger.event is TriggerEvent.UPDATE:
        event = f"UPDATE OF {', '.join(trigger.watched)}"
        changed = " OR ".join(f"OLD.{name} <> NEW.{name}" for name in trigger.watched)
        condition = f"WHEN {changed}"
    return (
        f"CREATE TRIGGER {trigger.name} AFTER {event} ON {trigger.table} {condition}"
        f" BEGIN {body} END"
    )


def _relation(row: str, columns: tuple[str, ...]) -> str:
    return f"(SELECT {', '.join(f'{row}.{name} AS {name}' for name in columns)})"

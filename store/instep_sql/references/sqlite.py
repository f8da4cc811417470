"""The triggers of places and references in SQLite."""

from __future__ import annotations

from typing import Final

__all__ = ["CREATE", "DROP"]

_STALE: Final = """
INSERT INTO instep_stale (stream_no, entity_id) VALUES (NEW.stream_no, NEW.id)
ON CONFLICT DO NOTHING
"""
_LOST: Final = """
UPDATE {0} SET since_us = (SELECT updated_at_us FROM instep_stream WHERE id = OLD.stream_no)
WHERE OLD.uuid <> '' AND uuid = OLD.uuid AND stream_no IN (
    SELECT other.id FROM instep_stream AS one JOIN instep_stream AS other
    ON other.consumer = one.consumer WHERE one.id = OLD.stream_no)
"""
_OF: Final = "DELETE FROM {} WHERE entity_id = OLD.id"

CREATE: Final = (
    f"""
    CREATE TRIGGER instep_entity_inserted AFTER INSERT ON instep_entity BEGIN {_STALE}; END
    """,
    f"""
    CREATE TRIGGER instep_entity_updated AFTER UPDATE OF uuid, envelope, body ON instep_entity
    WHEN OLD.body <> NEW.body OR OLD.envelope <> NEW.envelope OR OLD.uuid <> NEW.uuid
    BEGIN {_STALE}; END
    """,
    f"""
    CREATE TRIGGER instep_entity_deleted AFTER DELETE ON instep_entity BEGIN
        {_OF.format("instep_stated")};
        {_OF.format("instep_place")};
        {_OF.format("instep_reference")};
        {_OF.format("instep_stale")} AND stream_no = OLD.stream_no;
        {_LOST.format("instep_place")};
        {_LOST.format("instep_reference")};
    END
    """,
)
DROP: Final = tuple(
    f"DROP TRIGGER IF EXISTS instep_entity_{event}" for event in ("inserted", "updated", "deleted")
)

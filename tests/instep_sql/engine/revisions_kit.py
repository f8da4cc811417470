"""A made-up revision after the newest, as the next version of instep would bring one."""

from __future__ import annotations

import shutil
from pathlib import Path

import instep_sql.migrations
from instep_sql.engine import schema

HEAD = schema.HEAD
NEXT = f"{int(HEAD) + 1:04}"

_REVISION = f"""
from alembic import op
from sqlalchemy import Column, Text

revision = "{NEXT}"
down_revision = "{HEAD}"


def upgrade():
    op.add_column("instep_stream", Column("made_up", Text, nullable=False, server_default="new"))
    {{then}}
"""


def write_revision(folder: Path, *, then: str = "") -> Path:
    """The migrations of this instep and one more, which ends with this statement."""
    scripts = folder / "migrations"
    shutil.copytree(Path(instep_sql.migrations.__file__).parent, scripts)
    (scripts / "versions" / f"v{NEXT}_made_up.py").write_text(_REVISION.format(then=then))
    return scripts


def use_revision(scripts: Path) -> None:
    """Be the next version of instep in this process, which does nothing else."""
    schema._SCRIPTS = str(scripts)  # type: ignore[misc]
    schema.HEAD = NEXT  # type: ignore[misc]

"""Whether a traceback is wanted: known before the rest of the command line is imported."""

from __future__ import annotations

from contextvars import ContextVar
from typing import Final

__all__ = ["DEBUG"]

DEBUG: Final[ContextVar[bool]] = ContextVar("DEBUG", default=False)
"""Set by `instep --debug`."""

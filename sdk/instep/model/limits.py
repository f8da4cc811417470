"""Bounds of the numbers in settings."""

from __future__ import annotations

from typing import Annotated

import msgspec

__all__ = []


Seconds = Annotated[float, msgspec.Meta(gt=0.0, le=1e9)]


Count = Annotated[int, msgspec.Meta(ge=1)]


Share = Annotated[float, msgspec.Meta(ge=0.0, le=1.0)]

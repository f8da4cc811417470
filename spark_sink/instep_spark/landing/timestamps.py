"""Reads event times in bulk: Arrow parses the usual spelling, the others are parsed one by one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from instep_spark.derivations import read_time

__all__ = ["parse_timestamps"]

_TYPE: Final = pa.timestamp("us", tz="UTC")
_FIRST: Final = pa.scalar(-62_135_596_800_000_000, pa.int64()).cast(_TYPE)
"""Of the year 1: before it, there is no time for Python."""
_USUAL: Final = len("2021-04-28T14:14Z")
"""Shorter ones may be a date alone, which says nothing of the time; Arrow reads midnight."""


def parse_timestamps(texts: Sequence[str | None]) -> pa.Array:
    """Return the times of these texts; null where a text is no time."""
    spelled = pa.array(texts, pa.string())
    shortest = pc.min(pc.binary_length(spelled)).as_py()
    if shortest is None or shortest >= _USUAL:
        try:
            times = spelled.cast(_TYPE)
        except pa.ArrowInvalid:
            times = None
        if times is not None and not pc.any(pc.less(times, _FIRST)).as_py():
            return times
    return pa.array([read_time(text) for text in texts], pa.int64()).cast(_TYPE)

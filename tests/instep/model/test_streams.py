"""Streams as stores keep them."""

from __future__ import annotations

import msgspec
import pytest

from instep import Mode, StreamInfo


def test_what_a_store_keeps_is_read_as_it_was() -> None:
    info = StreamInfo(
        id="s",
        origin="o",
        kind="k",
        mode=Mode.BASELINE,
        partial_updates=True,
        may_start_with_snapshot=False,
        variant="v",
    )
    assert StreamInfo.from_stored(msgspec.to_builtins(info)) == info


def test_what_is_no_stream_is_refused() -> None:
    with pytest.raises(msgspec.ValidationError):
        StreamInfo.from_stored({"id": "s"})

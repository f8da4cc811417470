"""The knobs refuse what cannot work."""

from __future__ import annotations

import msgspec
import pytest

from instep import ConsumerSettings


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("batch_records", 0),
        ("batch_bytes", -1),
        ("poll_state_s", 0),
        ("reconnect_max_s", -1.0),
        ("reconnect_attempts", -1),
    ],
)
def test_what_cannot_work_is_refused(key: str, value: object) -> None:
    with pytest.raises(msgspec.ValidationError, match=key):
        msgspec.convert({key: value}, ConsumerSettings)


@pytest.mark.parametrize(
    ("key", "value"), [("quiet_s", 0), ("sweep_guard_share", 1.5), ("sweep_step_records", 0)]
)
def test_what_cannot_work_in_an_alignment_is_refused(key: str, value: object) -> None:
    with pytest.raises(msgspec.ValidationError, match=key):
        msgspec.convert({"alignment": {key: value}}, ConsumerSettings)

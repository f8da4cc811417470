"""Exchanges that were captured between a consumer and a provider of another make."""

from __future__ import annotations

from pathlib import Path

import pytest

from instep_soap import Envelope, read_envelope

__all__ = ["CAPTURES", "body_bytes", "captured", "needs_captures"]

CAPTURES = Path(__file__).resolve().parents[3] / "shared" / "data" / "sdc"
needs_captures = pytest.mark.skipif(
    not (CAPTURES / "sdc_seq").is_dir(), reason="the captures of a BICEPS provider are not here"
)


def captured(pattern: str, *, of: str = "sdc_seq") -> list[Envelope]:
    """The envelopes of the exchanges whose names fit, in their order."""
    paths = sorted((CAPTURES / of).glob(f"*{pattern}*.http"))
    assert paths, f"nothing was captured as {pattern}"
    return [read_envelope(body_bytes(path)) for path in paths]


def body_bytes(path: Path) -> bytes:
    """The body of one captured message."""
    raw = path.read_bytes()
    cut = b"\r\n\r\n" if b"\r\n\r\n" in raw else b"\n\n"
    return raw.partition(cut)[2]

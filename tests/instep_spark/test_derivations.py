"""What derivations bring is found by entry points; the first that reads something counts."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from instep.config.derivations import find_derivations
from instep.ports.lake import EnvelopeColumns, LakeDerivation
from instep_spark import derivations


def made(time: str, address: bytes | None, us: int | None) -> LakeDerivation:
    """Reads of each envelope that is this time its time and an address, and of any text `us`."""

    def read(envelopes: Sequence[bytes]) -> EnvelopeColumns:
        times = [time if one == time.encode() else None for one in envelopes]
        return EnvelopeColumns(times, [None if one is None else address for one in times])

    return LakeDerivation(read_envelopes=read, read_time=lambda _: us, event_sql="NULL")


def test_the_first_derivation_that_reads_something_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    both = (made("now", None, None), made("then", b"[]", 7))
    monkeypatch.setattr(derivations, "_ALL", both)
    read = derivations.read_envelopes([b"now", b"then", b""])
    assert read == (["now", "then", None], [None, b"[]", None])
    assert derivations.read_time("x") == 7
    assert derivations.typed_models.__wrapped__() == ()


def test_without_derivations_nothing_is_stated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(derivations, "_ALL", ())
    assert derivations.read_envelopes([b"{}"]) == ([None], [None])
    assert derivations.read_time("2026-06-30T23:59:59Z") is None


def test_what_is_for_other_stores_is_passed_over() -> None:
    taken = [name for name, one in find_derivations().items() if one in derivations._ALL]
    assert taken == ["tapi-lake"]

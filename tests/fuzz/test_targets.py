"""Each fuzz target for a short while; for long by `make fuzz`, by coverage by `-m tests.fuzz`."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.fuzz.seeds import SEEDS, WORDS
from tests.fuzz.targets import TARGETS


@st.composite
def mutated(draw: st.DrawFn, seeds: list[bytes]) -> bytes:
    """A seed with some of its parts cut out, doubled, or replaced by words."""
    data = draw(st.sampled_from(seeds))
    for _ in range(draw(st.integers(0, 4))):
        first, last = sorted(draw(st.tuples(*[st.integers(0, len(data))] * 2)))
        put = draw(
            st.just(b"") | st.just(data[first:last] * 2) | st.sampled_from(WORDS) | st.binary()
        )
        data = data[:first] + put + data[last:]
    return data


@pytest.mark.parametrize("name", list(TARGETS))
def test_the_seeds_themselves(name: str) -> None:
    for seed in SEEDS[name]:
        TARGETS[name](seed)


@pytest.mark.parametrize("name", list(TARGETS))
@given(data=st.data())
def test_mutations_of_what_is_usual(name: str, data: st.DataObject) -> None:
    TARGETS[name](data.draw(mutated(SEEDS[name])))


@pytest.mark.parametrize("name", list(TARGETS))
@given(data=st.binary(max_size=200))
def test_any_bytes(name: str, data: bytes) -> None:
    TARGETS[name](data)

"""Places in a journal, as text."""

from __future__ import annotations

import pytest

from instep.errors import ConfigurationError
from instep.model.entities import JournalEnd


def test_a_place_is_read_back() -> None:
    for end in (JournalEnd(0), JournalEnd(12, "a-b"), JournalEnd(2**62, "e")):
        assert JournalEnd.at(end.place) == end


@pytest.mark.parametrize("place", ["", "x", "-", "-1", "1.5-e", "²-e", "9" * 30])
def test_a_text_that_is_no_place_is_refused(place: str) -> None:
    with pytest.raises(ConfigurationError, match="is not a place in a journal"):
        JournalEnd.at(place)

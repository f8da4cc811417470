"""How many examples a property is tried with, where the usual hundred are too many or too few."""

from __future__ import annotations

import os

from hypothesis import settings

__all__ = ["few"]


def few(examples: int, *, many: int = 20_000, **others: int) -> settings:
    """`examples` in each run of the tests, `many` by `make properties`; `others` are settings of
    Hypothesis.
    """
    searching = os.environ.get("HYPOTHESIS_PROFILE") == "fuzz"
    return settings(max_examples=many if searching else examples, **others)  # type: ignore[arg-type]

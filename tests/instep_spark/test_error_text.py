"""What of a foreign error a user is told."""

import pytest

from instep_spark.error_text import first_line


@pytest.mark.parametrize(
    ("text", "told"),
    [("\none\ntwo", "one"), ("", "OSError"), (" \n", "OSError"), ("x" * 500, "x" * 400)],
)
def test_the_first_line_is_told_and_not_all_of_a_long_one(text: str, told: str) -> None:
    assert first_line(OSError(text)) == told
    assert first_line(OSError("x" * 500), None) == "x" * 500

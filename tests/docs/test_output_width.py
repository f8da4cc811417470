"""What a page shows of a terminal fits 80 columns, as it does on the reader's own."""

from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[2]
PAGES = [
    REPOSITORY / "README.md",
    *sorted((REPOSITORY / "docs/tutorial").glob("*.md")),
    *sorted((REPOSITORY / "docs/how-to").glob("*.md")),
]
COLUMNS = 80
COPIED = 60
"""Characters of a word, such as a URL, that is printed whole because it is to be copied."""


def too_wide(markdown: str) -> list[str]:
    """The lines of output that are wider, but for JSON lines and words that are to be copied."""
    found, block, command = [], "", False
    for line in markdown.splitlines():
        if line.startswith("```"):
            block = "" if block else line.removeprefix("```") or "text"
        elif block in {"console", "text"}:
            # A command is typed by the reader, whose shell wraps it.
            command = line.startswith("$ ") or (command and line.startswith("> "))
            whole = line.startswith("{") or max(map(len, line.split()), default=0) > COPIED
            if len(line) > COLUMNS and not command and not whole:
                found.append(line)
    return found


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.stem)
def test_output_fits_a_terminal(path: Path) -> None:
    assert too_wide(path.read_text(encoding="utf-8")) == []


def test_wide_output_is_found() -> None:
    wide = "word " * 17
    assert too_wide(f"```console\n$ {wide}\n> {wide}\n{wide}\n```\n{wide}") == [wide]
    assert too_wide(f"```text\n{{{wide}\nhttp://{'a' * 90}\n```\n```python\n{wide}\n```") == []

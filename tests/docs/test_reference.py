"""The reference has a page for every module with public names."""

import re
from pathlib import Path

from tests.test_exports import NAMES

REFERENCE = Path(__file__).resolve().parents[2] / "docs" / "reference"


def test_every_public_module_has_its_page() -> None:
    pages = "\n".join(page.read_text(encoding="utf-8") for page in REFERENCE.glob("*.md"))
    documented = set(re.findall(r"^\.\. automodule:: (\S+)$", pages, re.MULTILINE))
    assert NAMES.keys() - documented == set()

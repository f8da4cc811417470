"""What to do about a file that is not TOML. The parser tells what it did not expect, and where."""

from __future__ import annotations

import re
from typing import Final

__all__ = ["toml_hint"]

_PLACE: Final = re.compile(r"\(at line (\d+), column (\d+)\)")
_TWICE: Final = re.compile(r"Cannot declare \((.+?),?\) twice")
_CURLED: Final = re.compile("[“”„«»‘’]")
_USUAL: Final = "correct that line (https://toml.io describes the format)"


def toml_hint(text: str, problem: str) -> str:
    """What to do.

    Args:
        text: The file.
        problem: What `tomllib` says of it, with line and column.
    """
    lines = text.splitlines()
    place = _PLACE.search(problem)
    line = lines[int(place[1]) - 1] if place and int(place[1]) <= len(lines) else ""
    rest = line[int(place[2]) - 1 :] if place else ""
    if twice := _TWICE.match(problem):
        name = twice[1].replace("'", "").replace(", ", ".")
        return (
            f"keep one table [{name}]; another consumer begins with a line [[consumers]] before it"
        )
    if problem.startswith("Cannot overwrite a value"):
        return "a key stands there a second time: keep one of the two"
    if _CURLED.search(line):
        return 'write straight quotation marks: "'
    if text.lstrip().startswith("{"):
        return "this is JSON; write it as TOML: key = value, a line each"
    if re.match(r"\s*[\w-]+\s*:", line) or re.match(r"\s*- ", line):
        return "write key = value, with an equals sign; this looks like YAML"
    if rest.lower().startswith(("true", "false", "yes", "no")):
        return "write true or false, in small letters"
    if problem.startswith("Invalid value") and re.match(r"[A-Za-z_/.$]", rest):
        return f'write a text in quotation marks: "{rest.split("#")[0].strip()}"'
    if "initial character for a key part" in problem and not line.strip().startswith("["):
        return "write a table in braces { … } on one line, or begin it with a line [name.of.it]"
    if "\\" in line and ("Unescaped" in problem or "hex" in problem.lower()):
        return "write a text with backslashes in single quotation marks: 'C:\\folder'"
    if "Illegal character" in problem or "Unterminated" in problem:
        return "close each text by a quotation mark on the line where it begins"
    return _USUAL

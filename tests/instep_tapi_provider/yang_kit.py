"""The YANG of TAPI as a judge of what a provider says (RFC 7950, RFC 7951)."""

from __future__ import annotations

import json
import re
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

__all__ = ["Yang", "yang_of"]

_MODULE = re.compile(r"^module\s+([\w-]+)", re.MULTILINE).search
_REVISION = re.compile(r'^\s*revision\s+"?([\d-]+)"?', re.MULTILINE).search
_NAMESPACE = re.compile(r'^\s*namespace\s+"?([^\s";]+)', re.MULTILINE).search
_FEATURE = re.compile(r"^\s*feature\s+([\w-]+)", re.MULTILINE).findall
# The conditions of tapi-streaming 2.6.0 name identities that no module has ("CONDITION_DETECTOR"),
# so that no class could ever be stated.
_WHEN = re.compile(r"""^\s*when\s+(?:'[^']*'|"[^"]*");""", re.MULTILINE)
# The list of differences says that 2.6.0 has removed them; its modules still have them.
_LEAST = re.compile(r"^\s*min-elements\s+\d+;", re.MULTILINE)
# yangson passes over what augments a node that a later statement adds.
_AUGMENT = re.compile(r"^    augment .*?^    \}\s*?$", re.MULTILINE | re.DOTALL)
# References to members that 2.6.0 has no more.
_OAM_PROFILE = re.compile(
    r"""type\s+leafref\s*\{\s*path\s+'[^']*/tapi-oam:oam-profile/[^']*';\s*\}"""
)


class Yang:
    """The modules of a folder."""

    def __init__(self, folder: Path) -> None:
        from yangson import DataModel  # noqa: PLC0415 — a test without the YANG needs none

        with TemporaryDirectory() as patched:
            modules = [_module(path, Path(patched)) for path in sorted(folder.glob("*.yang"))]
            library = {"module-set-id": "tapi", "module": modules}
            text = json.dumps({"ietf-yang-library:modules-state": library})
            self._model = DataModel(text, [patched])

    def check(self, document: dict[str, Any]) -> None:
        """Fail unless a document of the data tree is valid."""
        self._validated(document, None, "all")

    def check_record(self, record: dict[str, Any]) -> None:
        """Fail unless a log-record has the form that a stream-record demands. What it refers to is
        stated by other records.
        """
        document = {"tapi-streaming:log-record": [record]}
        self._validated(document, "tapi-streaming:stream-record", "syntax")

    def _validated(self, document: dict[str, Any], subschema: str | None, scope: str) -> None:
        from yangson.enumerations import ContentType, ValidationScope  # noqa: PLC0415

        instance = self._model.from_raw(document, subschema)
        instance.validate(ValidationScope[scope], ContentType.all)


def _depth(augment: str) -> int:
    return augment.partition("{")[0].count("/")


def _module(path: Path, into: Path) -> dict[str, Any]:
    """Write a module where it is read from, and describe it (RFC 7895)."""
    text = path.read_text("utf-8")
    for pattern, instead in ((_WHEN, ""), (_LEAST, ""), (_OAM_PROFILE, "type string;")):
        text = pattern.sub(instead, text)
    shallow_first = iter(sorted(_AUGMENT.findall(text), key=_depth))
    text = _AUGMENT.sub(lambda _: next(shallow_first), text)
    found = [search(text) for search in (_MODULE, _REVISION, _NAMESPACE)]
    name, revision, namespace = (one[1] if one else "" for one in found)
    (into / f"{name}@{revision}.yang").write_text(text, "utf-8")
    return {
        "name": name,
        "revision": revision,
        "namespace": namespace,
        "conformance-type": "implement",
        "feature": _FEATURE(text),
    }


@cache
def yang_of(folder: Path) -> Yang:
    """The modules of a folder. Skips the test where they are not there, or cannot be read."""
    pytest.importorskip("yangson", reason="yangson is not installed: pip install --group test")
    if not folder.is_dir():
        pytest.skip(f"the modules of TAPI are not in {folder}")
    return Yang(folder)

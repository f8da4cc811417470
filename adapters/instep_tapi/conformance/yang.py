"""Bodies by the YANG that the user gives, as a chapter of its own (RFC 7950, RFC 7951).

The modules are those that the provider publishes, or ONF's. Nothing of them is ours. What the
published modules of TAPI say in contradiction with themselves is not judged: see `YangModules`.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import msgspec

from instep.conformance import HELD, NOTHING, Evidence, Judge, Rule, RuleBroken, Verdict
from instep.errors import ConfigurationError
from instep_tapi.conformance.making import clauses
from instep_tapi.conformance.observations import RecordSeen, StreamsSeen

__all__ = ["YangModules", "yang_rules"]

_CHAPTER: Final = "Bodies by YANG"
_FIRST: Final = 20
"""So many records of each kind are judged, and then …"""
_EACH: Final = 50
"""… one of so many: it takes milliseconds, and records of a kind are alike."""
_MOST_KINDS: Final = 1_000
_REASON_CHARS: Final = 300
_MODULE: Final = re.compile(r"^\s*module\s+([\w.-]+)", re.MULTILINE)
_REVISION: Final = re.compile(r'^\s*revision\s+"?([\d-]+)"?', re.MULTILINE)
_NAMESPACE: Final = re.compile(r'^\s*namespace\s+"?([^\s";]+)', re.MULTILINE)
_FEATURE: Final = re.compile(r"^\s*feature\s+([\w.-]+)", re.MULTILINE)
_WHEN: Final = re.compile(r"""^\s*when\s+(?:'[^']*'|"[^"]*");""", re.MULTILINE)
_LEAST: Final = re.compile(r"^\s*min-elements\s+\d+;", re.MULTILINE)
_LEAFREF: Final = re.compile(
    r"""type\s+leafref\s*\{\s*path\s+'[^']*/tapi-oam:oam-profile/[^']*';\s*\}"""
)
_AUGMENT: Final = re.compile(r"^    augment .*?^    \}\s*?$", re.MULTILINE | re.DOTALL)


class YangModules:
    """The YANG modules of a folder, as a judge of what is stated.

    Not judged, since the modules of TAPI 2.6.0 contradict themselves there: conditions (`when`),
    which name identities that no module has, and least numbers of elements, which their list of
    changes has removed. Neither are references to what other records state, classes for which the
    modules have no member, and members that one module adds to another, but not to records.

    Raises `ConfigurationError`: the folder has no modules, they cannot be read, or the extra `yang`
    is not installed.
    """

    def __init__(self, folder: Path, where: str = "--yang") -> None:
        try:
            from yangson import DataModel  # noqa: PLC0415 - an extra
            from yangson.exceptions import YangsonException  # noqa: PLC0415 - an extra
        except ImportError as error:
            raise ConfigurationError(
                "bodies cannot be judged by YANG without yangson",
                where=where,
                hint='pip install "instep[yang]"',
            ) from error
        self._error: type[Exception] = YangsonException
        self.names: frozenset[str] = frozenset()
        """The modules."""
        paths = sorted(folder.glob("*.yang")) if folder.is_dir() else []
        if not paths:
            raise ConfigurationError(
                f"there are no YANG modules in {folder}",
                where=where,
                hint="name the folder of the modules that the provider publishes (*.yang)",
            )
        try:
            with TemporaryDirectory() as made:
                modules = [_written(path, Path(made)) for path in paths]
                self.names = frozenset(str(one["name"]) for one in modules)
                library = {"module-set-id": "tapi", "module": modules}
                text = msgspec.json.encode({"ietf-yang-library:modules-state": library}).decode()
                self._model = DataModel(text, [made])
        except (YangsonException, OSError, UnicodeDecodeError) as error:
            raise ConfigurationError(
                f"the YANG modules in {folder} cannot be read: {type(error).__name__}: {error}",
                where=where,
                hint="all modules that they import have to be there",
            ) from error

    def fault(self, document: Mapping[str, Any], structure: str | None = None) -> str:
        """What is wrong with a document by its form; empty where nothing is. `structure`: the
        notification that it is the content of; None: it is of the data tree.
        """
        from yangson.enumerations import ContentType, ValidationScope  # noqa: PLC0415 - an extra

        try:
            instance = self._model.from_raw(document, structure)
            instance.validate(ValidationScope.syntax, ContentType.all)
        except self._error as error:
            return f"{type(error).__name__}: {error}"[:_REASON_CHARS]
        return ""


def _written(path: Path, into: Path) -> dict[str, Any]:
    """Write a module where it is read from, and describe it (RFC 7895)."""
    text = path.read_text("utf-8")
    for pattern, instead in ((_WHEN, ""), (_LEAST, ""), (_LEAFREF, "type string;")):
        text = pattern.sub(instead, text)
    # What augments a node that a later statement adds would be passed over.
    shallow_first = iter(sorted(_AUGMENT.findall(text), key=_depth))
    text = _AUGMENT.sub(lambda _: next(shallow_first), text)
    found = [pattern.search(text) for pattern in (_MODULE, _REVISION, _NAMESPACE)]
    name, revision, namespace = (one[1] if one else "" for one in found)
    if not name or not namespace:
        raise OSError(f"{path.name} is no module")
    (into / f"{name}@{revision}.yang").write_text(text, "utf-8")
    return {
        "name": name,
        "revision": revision,
        "namespace": namespace,
        "conformance-type": "implement",
        "feature": _FEATURE.findall(text),
    }


def _depth(augment: str) -> int:
    return augment.partition("{")[0].count("/")


class _Records:
    """Judges some records of each kind."""

    def __init__(self, modules: YangModules | None) -> None:
        self._modules = modules
        self._seen: Counter[tuple[str, str, str]] = Counter()

    def __call__(self, seen: RecordSeen) -> Sequence[Verdict]:
        if self._modules is None:
            return NOTHING
        kind = (seen.connection.stream, seen.cls, seen.kind)
        if kind not in self._seen and len(self._seen) >= _MOST_KINDS:
            return NOTHING
        self._seen[kind] += 1
        if self._seen[kind] > _FIRST and self._seen[kind] % _EACH:
            return NOTHING
        document = {"tapi-streaming:log-record": [seen.stated]}
        fault = self._modules.fault(document, "tapi-streaming:stream-record")
        member = fault.rpartition("/")[2]
        if fault and member == seen.content_member:
            return NOTHING  # the modules have no member for this class; another rule has its name
        if member.partition(":")[0] in self._modules.names and ":" in member:
            return NOTHING  # what one module adds to the tree of another, but not to its records
        return _verdict(fault, seen.evidence)


class _Streams:
    """Judges a stream context where it says something new."""

    def __init__(self, modules: YangModules | None) -> None:
        self._modules = modules

    def __call__(self, seen: StreamsSeen) -> Sequence[Verdict]:
        if self._modules is None or not seen.changed:
            return NOTHING
        document = {"tapi-common:context": {"tapi-streaming:stream-context": seen.stated}}
        return _verdict(self._modules.fault(document), seen.evidence)


def _verdict(fault: str, evidence: Evidence) -> Sequence[Verdict]:
    return (RuleBroken(fault, (evidence,)),) if fault else HELD


def yang_rules(modules: YangModules | None) -> tuple[Rule, ...]:
    """The rules of this chapter, judged by these modules; without any nothing of it is seen."""

    def rule(id_: str, sees: type, make: Callable[[], Judge], **given: Any) -> Rule:
        return Rule(
            id=f"tapi-yang-{id_}",
            chapter=_CHAPTER,
            clauses=clauses("3.10 (YANG, RFC 7951)", "3.10 (YANG, RFC 7951)"),
            why="A client that is made from the YANG reads what the YANG has, and nothing else: it"
            " refuses the body, or does not see what is in it.",
            sees=(sees,),
            make_judge=make,
            **given,
        )

    return (
        rule(
            "streams",
            StreamsSeen,
            lambda: _Streams(modules),
            text="The stream context has the form that the YANG demands.",
            provoke="Give the modules of the provider: --yang FOLDER.",
            right='"stream-state": "STREAM_STATE_ACTIVE"',
            wrong='"stream-state": "RUNNING", or a member that no module has',
        ),
        rule(
            "record",
            RecordSeen,
            lambda: _Records(modules),
            text="A log-record has the form that the YANG demands.",
            provoke="Give the modules of the provider: --yang FOLDER.",
            right='"lifecycle-state": "INSTALLED"',
            wrong='"lifecycle-state": "LIFECYCLE_STATE_INSTALLED", or a member that no module has',
        ),
    )

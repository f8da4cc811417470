"""A report of conformance as JUnit XML, for the tests of whoever makes the peer."""

from __future__ import annotations

from xml.etree import ElementTree as ET

from instep.cli.output import plain_lines, stamp
from instep.conformance import ConformanceReport, RuleLevel, RuleResult, RuleStatus

__all__ = ["junit"]

_SHOWN_BYTES = 2_000


def junit(report: ConformanceReport) -> str:
    """One suite a chapter, one case a rule. A MUST that is broken is a failure; a SHOULD that is
    broken passes and says so; what was not seen is skipped.
    """
    suites = ET.Element("testsuites", name=report.title)
    chapters: dict[str, list[RuleResult]] = {}
    for result in report.results:
        chapters.setdefault(result.chapter, []).append(result)
    seconds = f"{(report.ended_at_us - report.began_at_us) / 1e6:.3f}"
    suites.set("time", seconds)
    for chapter, results in chapters.items():
        failed = sum(_fails(one) for one in results)
        skipped = sum(one.status is RuleStatus.NOT_SEEN for one in results)
        suite = ET.SubElement(
            suites,
            "testsuite",
            name=chapter,
            tests=str(len(results)),
            failures=str(failed),
            skipped=str(skipped),
            errors="0",
            timestamp=stamp(report.began_at_us)[:19],
            hostname=_clean(report.subject),
        )
        for one in results:
            _case(suite, report, one)
    ET.indent(suites)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + ET.tostring(suites, encoding="unicode")


def _fails(result: RuleResult) -> bool:
    return result.status is RuleStatus.BROKEN and result.level is RuleLevel.MUST


def _case(suite: ET.Element, report: ConformanceReport, result: RuleResult) -> None:
    case = ET.SubElement(
        suite,
        "testcase",
        classname=f"{report.protocol}.{result.chapter}",
        name=f"{result.rule} ({result.clause}): {result.text}",
    )
    match result.status:
        case RuleStatus.NOT_SEEN:
            ET.SubElement(case, "skipped", message=result.provoke)
        case RuleStatus.BROKEN:
            kind = "failure" if _fails(result) else "system-out"
            told = ET.SubElement(case, kind)
            if _fails(result):
                told.set("message", _clean(result.reason))
                told.set("type", result.rule)
            told.text = _clean(_evidence(result))
        case _:
            pass


def _evidence(result: RuleResult) -> str:
    lines = [f"broken {result.broken:,} times: {result.reason}"]
    for one in result.evidence:
        shown = one.content[:_SHOWN_BYTES].decode(errors="replace")
        lines.append(f"{stamp(one.at_us)}  {one.what}\n{shown}")
    return "\n".join(lines)


def _clean(text: str) -> str:
    """Without characters that XML 1.0 cannot hold."""
    return "".join(
        char if char in "\n\t" or 0x20 <= ord(char) < 0xFFFE else "\ufffd"
        for char in plain_lines(text)
    )

"""Bodies by the YANG that the user gives: what the modules have is held, what they have not is not.

The modules of TAPI are not ours: without them only a small one of our own is tried.
"""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from instep.conformance import (
    ConformanceReport,
    ConnectionOpened,
    Event,
    MessageReceived,
    ResponseReceived,
    RuleStatus,
    judge,
)
from instep.errors import ConfigurationError
from instep_tapi.conformance.book import tapi_rules
from instep_tapi.conformance.yang import YangModules
from tests.instep_tapi.conformance.test_variants import lived

pytest.importorskip("yangson", reason="the extra `yang` is not installed")

FOLDERS = {"2.1.3": "yang", "2.6": "yang-2.6.0"}
STREAMING = """
module tapi-streaming {
    namespace "urn:example:tapi-streaming";
    prefix s;
    import tapi-common { prefix c; }
    revision 2020-06-16;
    notification stream-record {
        list log-record {
            container log-record-header {
                leaf token { type string; }
                leaf entity-key { type string; }
                leaf record-type { type enumeration { enum RECORD_TYPE_CREATE_UPDATE; } }
            }
            container log-record-body {
                leaf record-content { type string; }
                container link { leaf uuid { type string { length "1..36"; } } }
            }
        }
    }
    augment "/c:context" {
        container stream-context {
            list available-stream {
                key uuid;
                leaf uuid { type string; }
                leaf stream-state { type enumeration { enum STREAM_STATE_ACTIVE; } }
                container supported-stream-type {
                    leaf supported-stream-type-uuid { type string; }
                }
            }
            list supported-stream-type { key uuid; leaf uuid { type string; } }
        }
    }
}
"""
COMMON = """
module tapi-common {
    namespace "urn:example:tapi-common";
    prefix c;
    revision 2020-04-23;
    container context { leaf uuid { type string; } }
}
"""


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> YangModules:
    folder = tmp_path_factory.mktemp("yang")
    (folder / "tapi-streaming.yang").write_text(STREAMING)
    (folder / "tapi-common@2020-04-23.yang").write_text(COMMON)
    return YangModules(folder)


def found(report: ConformanceReport) -> dict[str, RuleStatus]:
    return {
        one.rule.removeprefix("tapi-yang-"): one.status
        for one in report.results
        if one.rule.startswith("tapi-yang-")
    }


def trace(link: dict[str, object], state: str = "STREAM_STATE_ACTIVE") -> list[Event]:
    """A stream context, and a record of a link."""
    stream = {
        "uuid": "s",
        "stream-state": state,
        "supported-stream-type": {"supported-stream-type-uuid": "t"},
    }
    container = {"available-stream": [stream], "supported-stream-type": [{"uuid": "t"}]}
    header = {"token": "a", "entity-key": "k", "record-type": "RECORD_TYPE_CREATE_UPDATE"}
    record = {
        "log-record-header": header,
        "log-record-body": {"record-content": "LINK", "link": link},
    }
    return [
        ResponseReceived(
            1, "/c", 200, msgspec.json.encode({"tapi-streaming:stream-context": container})
        ),
        ConnectionOpened(2, 1, "s"),
        MessageReceived(3, 1, msgspec.json.encode(record)),
    ]


def test_what_the_modules_have_is_held(small: YangModules) -> None:
    report = judge(tapi_rules(yang=small), trace({"uuid": "u"}))
    assert found(report) == {"streams": RuleStatus.HELD, "record": RuleStatus.HELD}


def test_a_member_that_no_module_has_is_shown(small: YangModules) -> None:
    report = judge(tapi_rules(yang=small), trace({"uuid": "u", "colour": "red"}))
    assert found(report)["record"] is RuleStatus.BROKEN
    (broken,) = [one for one in report.broken if one.rule == "tapi-yang-record"]
    assert "link/colour" in broken.reason
    assert b"colour" in broken.evidence[0].content


def test_a_value_of_another_type_is_shown(small: YangModules) -> None:
    report = judge(tapi_rules(yang=small), trace({"uuid": 7}))
    assert found(report)["record"] is RuleStatus.BROKEN
    report = judge(tapi_rules(yang=small), trace({"uuid": "u"}, state="RUNNING"))
    assert found(report)["streams"] is RuleStatus.BROKEN


def test_without_modules_nothing_of_it_is_seen() -> None:
    report = judge(tapi_rules(), trace({"colour": "red"}))
    assert set(found(report).values()) == {RuleStatus.NOT_SEEN}
    told = [one.provoke for one in report.results if one.rule == "tapi-yang-record"]
    assert "--yang FOLDER" in told[0]


def test_a_folder_without_modules_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="no YANG modules"):
        YangModules(tmp_path)
    with pytest.raises(ConfigurationError, match="no YANG modules"):
        YangModules(tmp_path / "none")
    (tmp_path / "a.yang").write_text("container a;")
    with pytest.raises(ConfigurationError, match="is no module"):
        YangModules(tmp_path)
    (tmp_path / "a.yang").write_text(STREAMING)  # it imports what is not there
    with pytest.raises(ConfigurationError, match="cannot be read"):
        YangModules(tmp_path)


@pytest.mark.parametrize("tapi", FOLDERS)
def test_the_simulated_provider_holds_the_yang_of_its_edition(tapi: str, shared_data: Path) -> None:
    report = judge(tapi_rules(yang=published(shared_data, tapi)), lived("", tapi).trace)
    assert found(report) == {"streams": RuleStatus.HELD, "record": RuleStatus.HELD}
    assert [one.rule for one in report.broken] == []


@pytest.mark.parametrize(
    ("deviates", "rule"),
    [("unknown-state", "streams"), ("odd-spread", "record"), ("nested-event-time", "record")],
)
def test_what_the_published_modules_do_not_have_is_shown(
    deviates: str, rule: str, shared_data: Path
) -> None:
    report = judge(tapi_rules(yang=published(shared_data, "2.1.3")), lived(deviates).trace)
    assert found(report)[rule] is RuleStatus.BROKEN


def published(shared_data: Path, tapi: str) -> YangModules:
    folder = shared_data / "tapi" / FOLDERS[tapi]
    if not folder.is_dir():
        pytest.skip(f"the modules of TAPI are not in {folder}")
    return YangModules(folder)

"""Which entities stand below which, as TR-548 v3.2 3.10.3 has it in its tables 1 and 3."""

from __future__ import annotations

from pathlib import Path

import pytest

from instep_tapi.facts.classes import CLASSES_FILE
from instep_tapi.facts.containment import (
    CONTAINED_CLASSES,
    GLOBAL_CLASSES,
    LOCAL_CLASSES,
    SERIES_CLASSES,
    contained_class,
    contains,
)
from instep_tapi.facts.periods import MEASURING

# Parent, member, class; the context stands for its parts.
GLOBAL = """
    TAPI_CONTEXT service-interface-point SERVICE_INTERFACE_POINT
    TAPI_CONTEXT profile PROFILE
    TAPI_CONTEXT topology TOPOLOGY
    TOPOLOGY node NODE
    NODE owned-node-edge-point NODE_EDGE_POINT
    NODE node-rule-group NODE_RULE_GROUP
    NODE inter-rule-group INTER_RULE_GROUP
    TOPOLOGY link LINK
    TAPI_CONTEXT connectivity-service CONNECTIVITY_SERVICE
    TAPI_CONTEXT connection CONNECTION
    NODE_EDGE_POINT connection-end-point CONNECTION_END_POINT
    CONNECTION switch-control SWITCH_CONTROL
    DEVICE equipment EQUIPMENT
    EQUIPMENT contained-holder HOLDER
    TAPI_CONTEXT device DEVICE
    DEVICE access-port ACCESS_PORT
    TAPI_CONTEXT physical-span PHYSICAL_SPAN
    TAPI_CONTEXT path-comp-service PATH_COMPUTATION_SERVICE
    TAPI_CONTEXT path PATH
    TAPI_CONTEXT oam-service OAM_SERVICE
    TAPI_CONTEXT meg MAINTENANCE_ENTITY_GROUP
    TAPI_CONTEXT oam-job OAM_JOB
    TAPI_CONTEXT oam-profile OAM_PROFILE
    TAPI_CONTEXT oam-job-service OAM_JOB_SERVICE
    TAPI_CONTEXT oam-job-descriptor OAM_JOB_DESCRIPTOR
    TAPI_CONTEXT cep-pm-data CEP_PM_DATA
    TAPI_CONTEXT mep-pm-data MEP_PM_DATA
    TAPI_CONTEXT mip-pm-data MIP_PM_DATA
    TAPI_CONTEXT available-stream AVAILABLE_STREAM
    TAPI_CONTEXT supported-stream-type SUPPORTED_STREAM_TYPE
    TAPI_CONTEXT stream-monitor STREAM_MONITOR
"""
LOCAL = """
    NODE_RULE_GROUP rule RULE
    INTER_RULE_GROUP rule RULE
    CONNECTIVITY_SERVICE end-point CONNECTIVITY_SERVICE_END_POINT
    CONNECTION route ROUTE
    PATH_COMPUTATION_SERVICE end-point PATH_SERVICE_END_POINT
    PHYSICAL_SPAN abstract-strand ABSTRACT_STRAND
    ABSTRACT_STRAND strand-joint STRAND_JOINT
    CONNECTION physical-route PHYSICAL_ROUTE
    SWITCH_CONTROL switch SWITCH
    OAM_SERVICE oam-service-point OAM_SERVICE_POINT
    MAINTENANCE_ENTITY_GROUP mep MEG_END_POINT
    MAINTENANCE_ENTITY_GROUP mip MEG_INTERMEDIATE_POINT
    OAM_JOB current-data CURRENT_DATA
    CURRENT_DATA history-data HISTORY_DATA
    CEP_PM_DATA history-data HISTORY_DATA
    MEP_PM_DATA history-data HISTORY_DATA
    MIP_PM_DATA history-data HISTORY_DATA
    OAM_JOB pm-data PM_DATA
    OAM_JOB_SERVICE pm-parameter-config PM_PARAMETER_CONFIG
"""


@pytest.mark.parametrize(("table", "classes"), [(GLOBAL, GLOBAL_CLASSES), (LOCAL, LOCAL_CLASSES)])
def test_3_10_3_entities_stand_where_the_tables_have_them(
    table: str, classes: frozenset[str]
) -> None:
    for line in table.strip().splitlines():
        parent, member, cls = line.split()
        assert contained_class(f"tapi-x:{member}", parent) == cls
        assert contains(parent, cls)
        assert cls in classes
        assert parent == "TAPI_CONTEXT" or cls in CONTAINED_CLASSES


def test_what_may_stand_in_the_context_needs_no_parent_address() -> None:
    assert contains("CONNECTIVITY_SERVICE", "OAM_SERVICE")
    assert "OAM_SERVICE" not in CONTAINED_CLASSES


def test_what_has_the_name_of_a_class_elsewhere_is_a_reference() -> None:
    assert contained_class("connection", "CONNECTIVITY_SERVICE") is None
    assert contained_class("connection-end-point", "CEP_PM_DATA") is None
    assert contained_class("profile", "NODE") is None


def test_the_classes_of_series_are_those_of_both_editions() -> None:
    assert {
        *("PM_CURRENT_DATA", "PM_HISTORY_DATA", "CURRENT_DATA", "HISTORY_DATA"),
        *("CEP_PM_DATA", "MEP_PM_DATA", "MIP_PM_DATA"),
    } == SERIES_CLASSES
    assert SERIES_CLASSES | {"OAM_JOB"} == MEASURING


def test_the_table_is_that_of_the_yang(shared_data: Path) -> None:
    pytest.importorskip("pyang", reason="pyang is not installed: pip install --group docs")
    from docs.tapi_classes import class_table  # noqa: PLC0415 — needs pyang

    folders = [shared_data / "tapi" / name for name in ("yang", "yang-2.6.0")]
    for folder in folders:
        if not folder.is_dir():
            pytest.skip(f"the modules of TAPI are not in {folder}")
    assert CLASSES_FILE.read_text("utf-8") == class_table(*folders), (
        "run: python -m docs.tapi_classes FOLDER_OF_2.1.3 FOLDER_OF_2.6"
    )

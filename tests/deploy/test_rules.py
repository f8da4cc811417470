"""The alert rules: what is committed is what the code says, and `promtool` shows that each fires as
the run book says, and not one step before.
"""

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from docs.operations import DEPLOY, FILES
from instep.metrics import FIGURES
from instep.metrics.alerts import ALERTS

RULES = DEPLOY / "prometheus" / "instep.rules.yaml"
PROMTOOL = shutil.which("promtool") or os.environ.get("PROMTOOL")
needs_promtool = pytest.mark.skipif(
    not PROMTOOL, reason="promtool is not here: Debian's package prometheus has it, or set PROMTOOL"
)
CONSUMER = 'consumer="east"'
STREAM = f'{CONSUMER},stream="network"'
KEPT = f'instep_stream_limit_seconds{{{STREAM},mark="%s"}}'
LEFT = f'instep_stream_margin_seconds{{{STREAM},mark="%s"}}'

# Alert → series that fire it, and the same one step before, each as a value that stays.
CASES: dict[str, tuple[dict[str, float], dict[str, float]]] = {
    "InstepDown": ({'up{job="instep"}': 0}, {'up{job="instep"}': 1}),
    "InstepFailed": (
        {f'instep_consumer_state{{{CONSUMER},state="failed"}}': 1},
        {f'instep_consumer_state{{{CONSUMER},state="retrying"}}': 1},
    ),
    "InstepNotReady": (
        {f"instep_consumer_ready{{{CONSUMER}}}": 0},
        {f"instep_consumer_ready{{{CONSUMER}}}": 1},
    ),
    "InstepProviderSilent": (
        {
            f"instep_stream_heard_age_seconds{{{STREAM}}}": 75.1,
            f"instep_stream_heard_limit_seconds{{{STREAM}}}": 75,
        },
        {
            f"instep_stream_heard_age_seconds{{{STREAM}}}": 75,
            f"instep_stream_heard_limit_seconds{{{STREAM}}}": 75,
        },
    ),
    "InstepDisconnected": (
        {f"instep_stream_connected{{{STREAM}}}": 0},
        {f"instep_stream_connected{{{STREAM}}}": 1},
    ),
    "InstepRetentionNear": (
        {LEFT % "retention": 899, KEPT % "retention": 3600},
        {LEFT % "retention": 900, KEPT % "retention": 3600},
    ),
    "InstepCompactionNear": (
        {LEFT % "compaction": -1, KEPT % "compaction": 600},
        {LEFT % "compaction": 150, KEPT % "compaction": 600},
    ),
    "InstepLost": (
        {f'instep_stream_phase{{{STREAM},phase="lost"}}': 1},
        {f'instep_stream_phase{{{STREAM},phase="aligning"}}': 1},
    ),
    "InstepStoreAway": (
        {f'instep_consumer_faults{{{CONSUMER},part="store"}}': 1},
        {f'instep_consumer_faults{{{CONSUMER},part="provider"}}': 1},
    ),
    "InstepSweepHeld": (
        {f"instep_stream_sweep_held{{{STREAM}}}": 1},
        {f"instep_stream_sweep_held{{{STREAM}}}": 0},
    ),
    "InstepNoProgress": (
        {f"instep_stream_attempts_unaligned{{{STREAM}}}": 3},
        {f"instep_stream_attempts_unaligned{{{STREAM}}}": 2},
    ),
    "InstepEntitiesWrong": (
        {
            f'instep_stream_entities_wrong{{{STREAM},verdict="stale"}}': 1,
            f'instep_stream_entities_wrong{{{STREAM},verdict="bogus"}}': 0,
        },
        {f'instep_stream_entities_wrong{{{STREAM},verdict="stale"}}': 0},
    ),
    "InstepUnproven": (
        {f"instep_stream_unproven{{{STREAM}}}": 1},
        {f"instep_stream_unproven{{{STREAM}}}": 0},
    ),
    "InstepGap": (
        {f"instep_intake_gap_age_seconds{{{CONSUMER}}}": 901},
        {f"instep_intake_gap_age_seconds{{{CONSUMER}}}": 900},
    ),
    "InstepBlocked": (
        {f"instep_intake_blocked{{{CONSUMER}}}": 1},
        {f"instep_intake_blocked{{{CONSUMER}}}": 0},
    ),
    "InstepDeadLetter": (
        {f"instep_intake_dead{{{CONSUMER}}}": 1},
        {f"instep_intake_dead{{{CONSUMER}}}": 0},
    ),
    "InstepNoStandby": (
        {f'instep_consumer_lease_held{{{CONSUMER},instance="a"}}': 1},
        {
            f'instep_consumer_lease_held{{{CONSUMER},instance="a"}}': 1,
            f'instep_consumer_lease_held{{{CONSUMER},instance="b"}}': 0,
        },
    ),
    "InstepLoopLate": (
        {f"instep_consumer_loop_lag_seconds{{{CONSUMER}}}": 1.1},
        {f"instep_consumer_loop_lag_seconds{{{CONSUMER}}}": 1},
    ),
}
ALIGNING: dict[str, float] = {
    LEFT % "compaction": -1,
    KEPT % "compaction": 600,
    f'instep_stream_phase{{{STREAM},phase="aligning"}}': 1,
}
RISING = {
    "InstepQuarantined": f"instep_stream_quarantined_total{{{STREAM}}}",
    "InstepSequenceFailed": f"instep_intake_failed_sequences_total{{{CONSUMER}}}",
}


@pytest.mark.parametrize("name", FILES)
def test_what_is_deployed_is_what_the_code_says(name: str) -> None:
    written = (DEPLOY / name).read_text(encoding="utf-8")
    assert written == FILES[name](), "run `python -m docs.operations`"


def test_each_alert_has_a_case_and_asks_for_figures_that_exist() -> None:
    assert {one.name for one in ALERTS} == {*CASES, *RISING}
    names = {figure.name for figure in FIGURES}
    for one in ALERTS:
        words = one.expression.replace("(", " ").replace("{", " ").replace("[", " ").split()
        asked = {word.rstrip(")") for word in words if word.startswith("instep_")}
        assert asked <= names, one.name


def judged(folder: Path, tests: list[dict[str, object]]) -> None:
    """Let promtool evaluate the rules, and compare what fires."""
    assert PROMTOOL
    file = folder / "tests.yaml"
    # JSON is YAML.
    file.write_text(
        json.dumps({"rule_files": [str(RULES)], "evaluation_interval": "15s", "tests": tests})
    )
    done = subprocess.run(
        [PROMTOOL, "test", "rules", str(file)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def fired(name: str) -> list[str]:
    """PromQL that has a sample for each firing alert."""
    return [f'count(ALERTS{{alertname="{name}",alertstate="firing"}})']


def one_test(name: str, series: dict[str, str], at_s: int, *, fires: bool) -> dict[str, object]:
    return {
        "interval": "15s",
        "input_series": [{"series": key, "values": value} for key, value in series.items()],
        "promql_expr_test": [
            {
                "expr": expr,
                "eval_time": f"{at_s}s",
                "exp_samples": [{"labels": "{}", "value": 1}] if fires else [],
            }
            for expr in fired(name)
        ],
    }


@needs_promtool
@pytest.mark.parametrize("name", CASES)
def test_each_alert_fires_and_not_one_step_before(name: str, tmp_path: Path) -> None:
    (alert,) = [one for one in ALERTS if one.name == name]
    fires, before = CASES[name]

    def constant(values: dict[str, float]) -> dict[str, str]:
        return {key: f"{value}+0x400" for key, value in values.items()}

    late_s = alert.for_s + 30
    tests = [
        one_test(name, constant(fires), late_s, fires=True),
        one_test(name, constant(before), late_s, fires=False),
    ]
    if alert.for_s:
        # A moment, as of a handover or a planned restart, fires nothing.
        tests.append(one_test(name, constant(fires), alert.for_s - 15, fires=False))
    if name == "InstepCompactionNear":
        tests.append(one_test(name, constant(ALIGNING), late_s, fires=False))
    judged(tmp_path, tests)


@needs_promtool
@pytest.mark.parametrize("name", RISING)
def test_what_counts_fires_while_it_grows(name: str, tmp_path: Path) -> None:
    series = RISING[name]
    judged(
        tmp_path,
        [
            one_test(name, {series: "7+1x100"}, 600, fires=True),
            one_test(name, {series: "7+0x100"}, 600, fires=False),
        ],
    )


@needs_promtool
def test_promtool_finds_no_mistake() -> None:
    assert PROMTOOL
    done = subprocess.run(
        [PROMTOOL, "check", "rules", str(RULES)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert f"{len(ALERTS)} rules found" in done.stdout

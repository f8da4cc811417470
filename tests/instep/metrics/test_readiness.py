"""What may be called ready, from the issue's own words: in step, heard and committed."""

import msgspec
import pytest

from instep.alignment.lag import Fidelity
from instep.coordination.lease import Role
from instep.metrics import Part, ReadinessRole, faults_of
from instep.model.position import Phase
from instep.runtime.health import ConsumerState, Health, IntakeHealth, PairHealth, StreamHealth

STREAM = StreamHealth(
    stream="network",
    phase=Phase.ALIGNED,
    attempt=1,
    caught_up=True,
    records=3,
    read_delay_s=0.0,
    fidelity=Fidelity.FULL,
    connected=True,
    last_error="",
    deviations={},
    quarantined=0,
    compaction_delay_s=600.0,
    tombstone_retention_s=3600.0,
    stale_after_s=10.0,
    heard_age_s=1.0,
    heard_within_s=75.0,
    phase_age_s=5.0,
)


def health(stream: StreamHealth | None = STREAM, **changes: object) -> Health:
    usual: dict[str, object] = {
        "consumer": "east",
        "state": ConsumerState.RUNNING,
        "error": "",
        "streams": () if stream is None else (stream,),
        "store_age_s": 3.0,
        "stale_after_s": 10.0,
    }
    return Health(**(usual | changes))  # type: ignore[arg-type]


def parts(one: Health, role: ReadinessRole = ReadinessRole.WRITER) -> list[Part]:
    return [fault.part for fault in faults_of([one], role)]


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"unproven": 7},
        {"unreadable": 7},
        {"phase": Phase.CONFIRMING, "phase_age_s": 59.0},
        # An hour of a silent network: Pongs come, records do not.
        {"record_age_s": 3600.0, "commit_age_s": 3600.0, "heard_age_s": 70.0},
        {"phase": Phase.NOT_OFFERED, "connected": False},
        # A connection that cannot tell whether the peer is there says nothing of it.
        {"heard_age_s": None, "heard_within_s": None},
        # While a commit runs, the socket may not be read: the silence is ours.
        {"heard_age_s": 80.0, "committing_s": 9.0},
    ],
)
def test_a_stream_that_moves_is_ready(changes: dict[str, object]) -> None:
    assert faults_of([health(msgspec.structs.replace(STREAM, **changes))]) == []


@pytest.mark.parametrize(
    ("changes", "part"),
    [
        ({"heard_age_s": 75.1}, Part.PROVIDER),
        ({"connected": False, "last_error": "refused"}, Part.PROVIDER),
        ({"committing_s": 10.1}, Part.STORE),
        ({"phase": Phase.CONFIRMING, "phase_age_s": 60.1}, Part.PROVIDER),
        ({"connected": False}, Part.CONSUMER),
        ({"phase": Phase.LOST}, Part.PROVIDER),
        ({"phase": Phase.SWEEP_HELD}, Part.OPERATOR),
        ({"phase": Phase.ALIGNING}, Part.CONSUMER),
        ({"caught_up": False}, Part.CONSUMER),
        ({"refused": 9, "readable": False}, Part.PROVIDER),
        ({"heard_s": 11.0}, Part.CONSUMER),
        ({"process_lost": True, "connected": False, "last_error": "SIGKILL"}, Part.CONSUMER),
    ],
)
def test_a_stream_that_does_not_says_who_is_at_fault(
    changes: dict[str, object], part: Part
) -> None:
    (fault,) = faults_of([health(msgspec.structs.replace(STREAM, **changes))])
    assert (fault.part, fault.consumer, fault.stream) == (part, "east", "network")
    assert str(fault).startswith(f"{part}: east / network: ")


def test_a_store_that_does_not_answer_is_at_fault_and_not_the_provider() -> None:
    hung = msgspec.structs.replace(STREAM, heard_age_s=500.0, committing_s=30.0)
    assert set(parts(health(hung, store_age_s=10.1))) == {Part.STORE}
    assert parts(health(store_age_s=None)) == [Part.STORE]


def test_a_consumer_that_has_failed_or_has_no_streams_yet_is_not_ready() -> None:
    failed = health(state=ConsumerState.FAILED, error="403")
    assert parts(failed) == parts(failed, ReadinessRole.READER) == [Part.CONSUMER]
    assert parts(health(None, state=ConsumerState.STARTING)) == [Part.CONSUMER]
    away = health(None, state=ConsumerState.STARTING, error="connection refused")
    assert parts(away) == [Part.PROVIDER]
    lost = health(process_lost=True, error="its process has ended", store_age_s=99.0)
    assert parts(lost) == [Part.CONSUMER]


@pytest.mark.parametrize("role", ReadinessRole)
def test_a_standby_is_ready_while_it_can_read_the_lease(role: ReadinessRole) -> None:
    pair = PairHealth(role=Role.STANDBY, holder="other", epoch=2, lease_s=30.0)
    standby = health(None, state=ConsumerState.STANDBY, pair=pair, store_age_s=29.0)
    assert faults_of([standby], role) == []
    assert parts(msgspec.structs.replace(standby, store_age_s=31.0), role) == [Part.STORE]


def test_readers_are_served_while_the_provider_is_away() -> None:
    away = health(msgspec.structs.replace(STREAM, connected=False, last_error="no route"))
    assert parts(away) == [Part.PROVIDER]
    assert parts(away, ReadinessRole.READER) == []


def test_a_receiver_is_ready_while_it_listens() -> None:
    intake = IntakeHealth(
        address="http://x", accepted=0, duplicates=0, refused=0, commits=0, queued=0, delivered=0,
        handler_failures=0, blocked=(), deviations={},
    )  # fmt: skip
    assert parts(health(None, intake=intake)) == []
    away = msgspec.structs.replace(intake, address="")
    assert parts(health(None, intake=away)) == [Part.CONSUMER]


def test_ages_go_on_after_they_were_said() -> None:
    said = msgspec.structs.replace(
        STREAM, behind_s=4.0, read_delay_s=4.0, record_age_s=2.0, committing_s=1.0
    )
    later = health(said).aged(600.0)
    (stream,) = later.streams
    assert (stream.heard_age_s, stream.record_age_s, stream.committing_s) == (601.0, 602.0, 601.0)
    assert (stream.read_delay_s, stream.fidelity) == (604.0, Fidelity.REDUCED)
    assert (stream.compaction_margin_s, stream.retention_margin_s) == (-4.0, 2996.0)
    assert later.store_age_s == 603.0

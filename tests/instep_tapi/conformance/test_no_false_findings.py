"""A provider that conforms is found to break nothing, whatever befalls it: random lives by seed.

What may befall a conforming provider: connections that drop, records that come twice or again, a
log that is lost and made anew, tokens that are taken for too old, streams that pause, changes that
are lost and repaired, partitions, frames and spellings of any kind, a client that reads slowly,
another one beside it that sends no Pong.
"""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from instep.conformance import judge
from instep_tapi.conformance.book import tapi_rules
from instep_tapi.facts.names import (
    CONDITION_DETECTOR,
    LogRecordStrategy,
    LogStorageStrategy,
    StreamState,
)
from instep_tapi_provider import (
    DiscoveryStyle,
    Faults,
    IdentityStyle,
    ProviderSettings,
    RecordStyle,
    StreamSettings,
    Wrapper,
)
from tests.instep_tapi.conformance.virtual_kit import HOUR_S, MINUTE_S, World

SEEDS = 20
LONG_SEEDS = 500
KEPT = (25, 196, 215, 384)
"""Seeds that have found mistakes: a CHANGE for one client and whole for another, a truncated log
that began anew, a token of another log, a whole record that was compacted.
"""


def provider_of(rng: random.Random) -> tuple[ProviderSettings, str]:
    """A conforming provider in any of the ways that one can be set up, and its edition."""
    tapi = rng.choice(("2.1.3", "2.6"))
    identities = rng.choice((IdentityStyle.NAME, IdentityStyle.PREFIXED))
    wrapper = rng.choice(list(Wrapper))
    style = RecordStyle(
        wrapper=wrapper,
        records_per_frame=1 if wrapper is Wrapper.BARE else rng.choice((1, 3, 50)),
        identities=identities,
        prefixed_members=rng.random() < 0.3 and tapi == "2.1.3",
        yang_time=rng.random() < 0.2,
    )
    delay_s = rng.choice((MINUTE_S, 10 * MINUTE_S, HOUR_S))
    log = {
        "style": style,
        "partitions": rng.choice((1, 1, 2, 4)),
        "emulated": rng.random() < 0.2,
        "compaction_delay_s": delay_s,
        "tombstone_retention_s": delay_s * rng.choice((1, 4, 24)),
        "retention_s": 24 * HOUR_S,
    }
    changes_only = rng.random() < 0.2
    network = StreamSettings(
        "network",
        storage=LogStorageStrategy.TRUNCATED
        if rng.random() < 0.15
        else LogStorageStrategy.COMPACTED,
        record_strategy=LogRecordStrategy.CHANGE_ONLY
        if changes_only
        else LogRecordStrategy.WHOLE_ENTITY_ON_CHANGE,
        **log,  # type: ignore[arg-type]
    )
    if network.storage is LogStorageStrategy.TRUNCATED:
        network = replace(network, emulated=False)
    alarms = StreamSettings("alarms", classes=frozenset({CONDITION_DETECTOR}), **log)  # type: ignore[arg-type]
    discovery = DiscoveryStyle(style=style, protocol=rng.choice(("websockets", "sse")))
    settings = ProviderSettings(
        streams=(network, alarms), discovery=discovery, seed=rng.getrandbits(16)
    )
    return settings.of_edition(tapi), tapi


def life(seed: int) -> World:
    """One random life of a conforming provider."""
    rng = random.Random(seed)
    settings, tapi = provider_of(rng)
    world = World(settings, seed, Faults(), tapi)
    world.pass_time(rng.choice((10 * MINUTE_S, 3 * HOUR_S)), step_s=MINUTE_S)
    world.get()
    world.get_streams()
    world.open()
    for _ in range(rng.randrange(8, 25)):
        befall(world, rng)
        if not world.connections and rng.random() < 0.8:
            world.open(resume=rng.random() < 0.7)
    if not world.connections:
        world.open()
    world.pass_time(2 * MINUTE_S)
    world.get()
    world.get_streams()
    return world


def befall(world: World, rng: random.Random) -> None:
    """One thing that may befall a conforming provider, or its client."""
    faults, provider = world.faults, world.provider
    stream = rng.choice(provider.streams)
    match rng.randrange(16):
        case 0 | 1 | 2:
            world.pass_time(rng.choice((20.0, 5 * MINUTE_S)), changes=rng.choice((0, 1, 4)))
        case 3:
            world.close()
            world.pass_time(rng.choice((10.0, 3 * MINUTE_S, HOUR_S)), step_s=30.0)
        case 4:
            faults.drop_after_records = rng.choice((None, None, 1, 7, 300))
        case 5:
            faults.rewind_records = rng.choice((0, 0, 1, 30))
        case 6:
            faults.duplicate_every = rng.choice((None, None, 1, 3))
        case 7:
            for one in provider.streams:
                one.forget_log()
            world.read()
        case 8 if world.realigned < 2:
            # Not more often: that would be a provider that honours no token.
            world.realigned += 1
            world.close()
            faults.expire_tokens = True
            world.open()
            faults.expire_tokens = False
            world.read()
        case 9:
            stream.state = StreamState.PAUSED
            world.get_streams()
            world.pass_time(MINUTE_S)
            world.get_streams()
            stream.state = StreamState.ACTIVE
            world.read()
        case 10:
            stream.records_changes = False
            world.pass_time(MINUTE_S)
            stream.audit()
            world.read()
        case 11:
            faults.shuffle_partitions = rng.random() < 0.5
        case _:
            befall_client(world, rng)


def befall_client(world: World, rng: random.Random) -> None:
    """One thing that a client does: it has a second one, is idle, or reads nothing."""
    match rng.randrange(4):
        case 0:
            world.close(second=True)
            world.open(second=True, resume=False)
            world.pass_time(rng.choice((10.0, MINUTE_S)))
        case 1:
            if rng.random() < 0.5:
                world.withhold_pongs()
            world.pass_time(rng.choice((20.0, MINUTE_S, 10 * MINUTE_S)), changes=0)
        case _:
            # A reader that is slow, and falls behind.
            world.pause()
            slow_s = rng.choice((20.0, MINUTE_S, HOUR_S, 5 * HOUR_S))
            world.pass_time(slow_s, step_s=max(30.0, slow_s / 60))
            world.resume()


def check(seed: int) -> None:
    report = judge(tapi_rules(), life(seed).trace)
    broken = {one.rule: one.reason for one in report.broken}
    assert broken == {}, f"seed {seed}"


@pytest.mark.parametrize("seed", [*range(SEEDS), *KEPT])
def test_a_conforming_provider_breaks_nothing(seed: int) -> None:
    check(seed)


@pytest.mark.long
@pytest.mark.timeout(900)
def test_a_conforming_provider_breaks_nothing_in_500_seeds() -> None:
    for seed in range(SEEDS, LONG_SEEDS):
        check(seed)

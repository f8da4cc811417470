"""Options are checked by name, and an error says where and what fits."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from instep.errors import ConfigurationError
from instep_sdpi import read_options
from instep_sdpi.plugin import source
from instep_sdpi.wire.names import MdibPart

BASE: dict[str, Any] = {"provider": "http://10.0.0.7:8080/device", "listen": "127.0.0.1:0"}


@pytest.mark.parametrize(
    ("given", "where", "hint"),
    [
        ({"provider": "ftp://x"}, "s.provider", ""),
        ({"provider": "http://a:b@10.0.0.7/"}, "s.provider", ""),
        ({"listen": "0.0.0.0:7443"}, "s.listen", "notify_to"),
        ({"listen": "127.0.0.1:0?x=1"}, "s.listen", ""),
        ({"listen": "https://127.0.0.1:0/"}, "s.tls", "set cert, key and ca in tls"),
        ({"actions": ["EpisodicMetricsReport"]}, "s.actions", "'EpisodicMetricReport'"),
        ({"actions": ["urn:unheard"]}, "s.actions", "known reports"),
        (
            {"actions": ["EpisodicMetricReport", "PeriodicMetricReport"]},
            "s.actions",
            "choose one",
        ),
        ({"subscriptions": [{"name": "a"}, {"name": "a"}]}, "s.subscriptions[0].name", ""),
        ({"subscriptions": [{"name": ""}]}, "s.subscriptions[0].name", ""),
        ({"subscriptions": [{"name": "a", "actions": []}]}, "s.subscriptions[0].actions", ""),
        ({"subscriptions": [{"name": "a"}], "actions": ["WaveformStream"]}, "s.actions", ""),
        ({"expires_s": 0}, "s", ""),
        ({"lisen": "127.0.0.1:0"}, "s", "listen"),
        ({"feed": {"reorder_window_s": -1}}, "s.feed", ""),
        ({"tls": {"cert": "/no/such/file"}}, "s.tls.cert", ""),
    ],
)
def test_what_cannot_work_is_named(given: dict[str, Any], where: str, hint: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        source.check({**BASE, **given}, "s")
    assert caught.value.where == where
    assert hint in caught.value.hint


@pytest.mark.parametrize("missing", ["provider", "listen"])
def test_what_is_missing_is_named(missing: str) -> None:
    with pytest.raises(ConfigurationError, match=missing):
        read_options({key: value for key, value in BASE.items() if key != missing}, "s")


def test_without_actions_all_but_waveforms_is_covered() -> None:
    (subscription,) = read_options(BASE, "s").subscribed
    assert subscription.name == "mdib"
    assert subscription.covers() == frozenset(MdibPart) - {MdibPart.WAVEFORM}


def test_actions_are_names_or_actions() -> None:
    base = "http://standards.ieee.org/downloads/11073/11073-20701-2018"
    actions = ["EpisodicAlertReport", f"{base}/WaveformService/WaveformStream"]
    (subscription,) = read_options({**BASE, "actions": actions}, "s").subscribed
    assert subscription.covers() == {MdibPart.ALERT, MdibPart.WAVEFORM}


def test_the_feed_keeps_what_the_protocol_needs() -> None:
    feed = read_options({**BASE, "feed": {"reorder_window_s": 0.5}}, "s").feed
    assert (feed.reorder_window_s, feed.apply_ahead, feed.answer_within_s) == (0.5, True, 4.0)


def test_what_is_shown_has_no_secret(tmp_path: Path) -> None:
    key = tmp_path / "key.pem"
    shown = source.shown({**BASE, "tls": {"key": str(key)}})
    assert shown["provider"] == BASE["provider"]

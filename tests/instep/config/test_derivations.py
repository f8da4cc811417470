"""Derivations are found by their entry points."""

from __future__ import annotations

from importlib.metadata import EntryPoint

import pytest

from instep.config import derivations
from instep.errors import ConfigurationError


def test_one_that_cannot_be_imported_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    point = EntryPoint("mine", "nowhere.at_all:derivation", "instep.derivations")
    monkeypatch.setattr(derivations, "entry_points", lambda **_: [point])
    with pytest.raises(ConfigurationError, match="the derivation 'mine' cannot be loaded"):
        derivations.find_derivations.__wrapped__()

"""A secret shows itself only when asked by name."""

from __future__ import annotations

import pickle

import pytest

from instep.config.secret import Secret


def test_no_text_form_shows_it() -> None:
    secret = Secret("s3cret")
    assert {repr(secret), str(secret), f"{secret}", f"{secret!r}", "%s" % secret} == {"***"}  # noqa: UP031
    assert secret.reveal() == "s3cret"
    with pytest.raises(TypeError):
        pickle.dumps(secret)


def test_secrets_compare_by_value() -> None:
    assert Secret("a") == Secret("a")
    assert len({Secret("a"), Secret("a"), Secret("é")}) == 2
    assert Secret("a") != "a"
    assert not Secret("")

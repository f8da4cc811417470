"""Whether an address is beyond loopback is decided by what is written, and nothing is looked up."""

from __future__ import annotations

import pytest

from instep.errors import ConfigurationError
from instep_http import ListenOptions, check_authenticated, read_listen

BEYOND = [
    "http://0.0.0.0:1/in",
    "http://[::]:1/in",
    "http://192.0.2.1:1/in",
    "https://[2001:db8::1]:1/in",
    "http://[::ffff:192.0.2.1]:1/in",
    "http://gateway.example.org:1/in",
    "http://localhost.example.org:1/in",
    "http://127.0.0.1.example.org:1/in",
    "http://127.1:1/in",
    "http://2130706433:1/in",
    "0.0.0.0:1",
]
LOOPBACK = [
    "http://127.0.0.1:1/in",
    "http://127.9.8.7:1/in",
    "http://[::1]:1/in",
    "http://[::ffff:127.0.0.1]:1/in",
    "http://localhost:1/in",
    "https://LOCALHOST.:1/in",
    "127.0.0.1:1",
]


@pytest.mark.parametrize("listen", BEYOND)
def test_beyond_loopback_something_proves_who_sends(listen: str) -> None:
    url = read_listen(listen, "x.listen")
    with pytest.raises(ConfigurationError, match="is not loopback") as caught:
        check_authenticated(url, "x.listen", proven=False, allowed=False, keys_hint="give keys")
    assert caught.value.where == "x.listen"
    assert caught.value.hint == (
        "give keys, or https with tls.client_ca, or allow it by name: allow_unauthenticated = true"
    )
    check_authenticated(url, "x", proven=True, allowed=False)
    check_authenticated(url, "x", proven=False, allowed=True)


@pytest.mark.parametrize("listen", LOOPBACK)
def test_on_loopback_nothing_has_to(listen: str) -> None:
    check_authenticated(read_listen(listen, "x"), "x", proven=False, allowed=False)


def test_the_certificate_of_a_client_proves_it() -> None:
    with pytest.raises(ConfigurationError, match="is not loopback"):
        ListenOptions(listen="http://0.0.0.0:1/in").check_listen("x")
    ListenOptions(listen="http://0.0.0.0:1/in", allow_unauthenticated=True).check_listen("x")

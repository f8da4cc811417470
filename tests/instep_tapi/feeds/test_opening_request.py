"""Where the request goes that opens a stream."""

import pytest
from yarl import URL

from instep.model.streams import Start
from instep_tapi.feeds.opening_request import start_url


@pytest.mark.parametrize(
    ("address", "start", "url"),
    [
        ("wss://h/s", Start.OLDEST, "wss://h/s"),
        ("wss://h/s", Start.LATEST, "wss://h/s?start_from=latest"),
        ("wss://h/s", "1_0:-1:A+/w4=", "wss://h/s?start_from=1_0%3A-1%3AA%2B%2Fw4%3D"),
        ("wss://h/a%2Fb?x=%20y", "t&é", "wss://h/a%2Fb?x=%20y&start_from=t%26%C3%A9"),
    ],
)
def test_5_10_1_the_token_is_percent_encoded(address: str, start: str, url: str) -> None:
    assert str(start_url(URL(address, encoded=True), start)) == url

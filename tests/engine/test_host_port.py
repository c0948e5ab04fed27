"""host:port as text."""

import pytest

from appliance.engine.host_port import cannot_reach, host_of, join_host_port, local_host, split_host_port

PAIRS = [("127.0.0.1:9876", ("127.0.0.1", 9876)), ("[::1]:9876", ("::1", 9876)), ("mq.example:0", ("mq.example", 0))]


@pytest.mark.parametrize(("text", "pair"), PAIRS)
def test_an_address_is_read_as_it_is_written(text, pair):
    assert split_host_port(text) == pair
    assert join_host_port(*pair) == text


@pytest.mark.parametrize("wrong", ["", "localhost", ":1", "host:", "host:x", "host:-1", "host:65536", "host:\u0661"])
def test_what_is_no_address_is_refused(wrong):
    with pytest.raises(ValueError, match="is not host:port"):
        split_host_port(wrong)


def test_the_host_alone_has_no_brackets():
    assert [host_of(text) for text in ("[::1]:80", "a:80", "", None)] == ["::1", "a", "", ""]


def test_what_listens_everywhere_is_reached_over_the_loopback():
    assert [local_host(bind) for bind in ("0.0.0.0", "::", "", "::1")] == ["127.0.0.1"] * 3 + ["::1"]


@pytest.mark.parametrize(
    ("host", "bind", "lost"),
    [
        ("10.1.2.3", "127.0.0.1", True),
        ("mq.example.org", "127.0.0.1", True),
        ("mq.example.org", "::1", True),
        ("10.1.2.3", "localhost", True),
        ("127.0.0.1", "10.1.2.3", True),
        ("127.0.0.2", "127.0.0.1", True),
        ("127.0.0.1", "127.0.0.1", False),
        ("localhost", "127.0.0.1", False),
        ("10.1.2.3", "0.0.0.0", False),
        ("10.1.2.3", "::", False),
        ("10.1.2.3", "10.1.2.3", False),
        ("203.0.113.7", "10.1.2.3", False),  # changed by address translation on the way
        ("mq.example.org", "10.1.2.3", False),
    ],
)
def test_an_address_that_leads_nowhere_is_known_where_the_texts_tell(host, bind, lost):
    assert cannot_reach(host, bind) == lost

"""host:port as text."""

import pytest

from appliance.engine.host_port import host_of, join_host_port, local_host, split_host_port

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

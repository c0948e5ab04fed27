"""The layout of a set of two, with TLS only, a shared secret, and no address of a member named."""

import pytest

from tests.support.set_of_two import SetOfTwo
from tests.support.tls import TlsPeer, make_pair
from tests.support.waiting import wait_for


class SetOverTls(SetOfTwo):
    peer_class = TlsPeer


@pytest.mark.nightly
def test_a_killed_leader_is_followed_by_the_other_and_follows_it_later(tmp_path):
    certificate, key = make_pair(tmp_path)
    secret = tmp_path / "secret"
    secret.write_text("0123456789abcdef" * 4)
    secret.chmod(0o600)
    settings = {
        "ROCKETBOX_BROKER_TLS_MODE": "enforcing",
        "ROCKETBOX_BROKER_TLS_CERT_FILE": str(certificate),
        "ROCKETBOX_BROKER_TLS_KEY_FILE": str(key),
        "ROCKETBOX_STORE_HA_SECRET_FILE": str(secret),
        "ROCKETBOX_STORE_HA_SLAVE_ADDRESSES": "192.0.2.1",
    }
    with SetOverTls(tmp_path, **settings) as brokers:
        assert brokers.send(1, 50) == [0] * 50
        brokers.brokers[1].kill()
        assert brokers.wait_for_sends((2,)) == 2
        assert brokers.send(2, 50) == [0] * 50
        assert set(brokers.acknowledged) <= set(brokers.bodies_at(2))
        brokers.hang_up(1)
        brokers.brokers[1].launch()
        brokers.brokers[1].wait_until_ready()
        brokers.wait_in_sync()
        assert brokers.send(2, 10) == [0] * 10
        wanted = brokers.bodies_at(2)
        wait_for(lambda: brokers.bodies_at(1) == wanted, "the old leader to serve the same")

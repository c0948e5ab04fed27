import pytest

from tests.support.engine import Peer, start_engine


@pytest.fixture
def engine(tmp_path):
    engine = start_engine(tmp_path)
    yield engine
    engine.stop()


@pytest.fixture
def peer(engine):
    peer = Peer(engine.broker_address)
    yield peer
    peer.close()

import pytest

from tests.support.remoting import Rig


@pytest.fixture
def rig():
    rig = Rig()
    yield rig
    rig.stop()

"""DataVersion: read from files and peers, written for peers."""

import pytest

from appliance.engine.protocol.data_version import DataVersion


@pytest.mark.parametrize(
    ("value", "version"),
    [
        (None, (0, 0, 0)),
        ({}, (0, 0, 0)),
        ({"counter": 3, "timestamp": None}, (0, 3, 0)),
        ({"counter": "3", "timestamp": 5, "stateVersion": 7, "other": []}, (5, 3, 7)),
        ({"counter": (1 << 63) - 1, "timestamp": -(1 << 63)}, (-(1 << 63), (1 << 63) - 1, 0)),
    ],
)
def test_what_files_and_peers_hold_is_read(value, version):
    assert DataVersion.decode(value) == version


@pytest.mark.parametrize("value", ["x", "", 1.5, True, [], 1 << 63, "9" * 5000])
def test_what_is_no_number_of_javas_is_refused(value):
    with pytest.raises(ValueError, match="not a number"):
        DataVersion.decode({"counter": value})


@pytest.mark.parametrize("value", [[], "x", 5])
def test_what_is_no_object_is_refused(value):
    with pytest.raises(ValueError, match="not an object"):
        DataVersion.decode(value)


def test_it_is_written_as_java_does():
    assert DataVersion(5, 3, 7).encode() == b'{"counter":3,"stateVersion":7,"timestamp":5}'


def test_the_next_one_never_goes_back_in_time():
    version = DataVersion(1000, 3, 7)
    assert version.following(2000) == (2000, 4, 7)
    assert version.following(500) == (1000, 4, 7)

"""Names of versions, as 5.3.3's `MQVersion.getVersionDesc` gives them."""

import pytest

from appliance.engine.protocol.codes import release_name, version_name


@pytest.mark.parametrize(
    ("ordinal", "name"),
    [
        (16, "V3_0_1_SNAPSHOT"), (17, "V3_0_1"), (28, "V3_0_7_SNAPSHOT"), (45, "V3_0_15"), (46, "V3_1_0_SNAPSHOT"),
        (62, "V3_1_8_SNAPSHOT"), (63, "V3_1_8"), (65, "V3_1_9"), (67, "V3_2_0"), (85, "V3_2_9"),
        (86, "V3_3_1_SNAPSHOT"), (87, "V3_3_1"), (103, "V3_3_9"), (105, "V3_4_1"), (158, "V3_7_1_SNAPSHOT"),
        (211, "V3_9_9"), (212, "V4_0_0_SNAPSHOT"), (213, "V4_0_0"), (235, "V4_1_1"), (317, "V4_5_2"),
        (409, "V4_9_8"), (413, "V5_0_0"), (479, "V5_3_3"), (612, "HIGHER_VERSION"), (9999, "HIGHER_VERSION"), (3, "V3"),
    ],
)  # fmt: skip
def test_a_version_has_the_name_that_mqadmin_prints(ordinal: int, name: str) -> None:
    assert version_name(ordinal) == name


@pytest.mark.parametrize(
    ("ordinal", "name"),
    [(15, "< 3.0.1"), (16, "3.0.1-SNAPSHOT"), (63, "3.1.8"), (409, "4.9.8"), (412, "5.0.0-SNAPSHOT"), (479, "5.3.3"),
     (611, "5.9.9"), (612, "> 5.9.9")],
)  # fmt: skip
def test_a_version_is_shown_as_people_write_it(ordinal: int, name: str) -> None:
    assert release_name(ordinal) == name

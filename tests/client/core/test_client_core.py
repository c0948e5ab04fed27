"""What brokers learn of a client."""

import json

from appliance.client.core.client_core import ClientCore
from appliance.client.core.directory import Directory
from appliance.client.core.requests import Member
from tests.support.client_steps import Driver, SetClock, answer


class Left:
    """A group that says whether it has left."""

    def __init__(self, name, is_closed):
        self.name, self.is_closed = name, is_closed

    def member(self):
        return Member(self.name)


def test_a_heartbeat_names_no_group_that_has_left():
    clock, told = SetClock(), []
    directory = Directory(["ns:9876"], clock, 3.0)
    core = ClientCore(directory, clock, "me", 3.0, note=lambda text: None)
    core.groups |= {name: Left(name, name == "left") for name in ("left", "stays")}
    driver = Driver(lambda call: told.append(json.loads(call.request.body)) or answer(), clock)
    driver.run(core.beat("a:10911"))
    assert [one["groupName"] for one in told[0]["consumerDataSet"]] == ["stays"]

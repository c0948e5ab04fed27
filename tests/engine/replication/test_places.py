"""Places at a master's port for slaves: how addresses share them."""

from types import SimpleNamespace

from appliance.engine.replication.places import MAX_SILENT, make_room, take_place


def links(*hosts, acknowledged=-1):
    def link(host):
        one = SimpleNamespace(host=host, acknowledged=acknowledged, stopped=False)
        one.request_stop = lambda: setattr(one, "stopped", True)
        return one

    return [link(host) for host in hosts]


def stopped(all_links):
    return [number for number, link in enumerate(all_links) if link.stopped]


def test_the_oldest_silent_one_of_the_address_with_the_most_gives_way():
    silent = links("10.0.0.2", *["10.0.0.1"] * (MAX_SILENT - 1))
    assert make_room(silent, "10.0.0.3") == ""
    assert stopped(silent) == [1]
    assert make_room(links(*["10.0.0.1"] * (MAX_SILENT - 1)), "10.0.0.1") == ""


def test_connections_that_are_about_to_end_keep_only_their_own_address_out():
    silent = links(*["fe80::1"] * 20)
    assert "send nothing" in make_room(silent, "fe80::2")
    assert make_room(silent, "10.0.0.1") == ""
    assert stopped(silent) == list(range(13)), "seven of them and the new one are left"
    assert "send nothing" in make_room(links(*[f"10.0.0.{n}" for n in range(32)]), "10.0.1.1")


def test_a_slave_gets_a_place_of_an_address_that_has_two_more():
    slaves = links("10.0.0.2", "10.0.0.2", acknowledged=0) + links(*["10.0.0.1"] * 14, acknowledged=9)
    slaves[7].acknowledged = 4
    [second, third] = links("10.0.0.2", "10.0.0.3")
    assert take_place(second, slaves, 16)
    assert stopped(slaves) == [7]
    assert not take_place(third, links("10.0.0.3", "10.0.0.4"), 2)
    assert take_place(third, links("10.0.0.4", "10.0.0.4"), 2)
    even = links("10.0.0.3", "10.0.0.4", "10.0.0.4")
    assert not take_place(third, even, 3)
    assert stopped(even) == []

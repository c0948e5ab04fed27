"""Every request code that a port serves is classified: administration, client work, broker work or reading."""

import pytest

from appliance.engine.protocol.codes import RequestCode
from appliance.engine.protocol.request_kinds import ADMIN, BROKER, CLIENT, KINDS, READ, kind_of
from tests.support.directories import shared_directory
from tests.support.engine import start_engine


@pytest.fixture(scope="module")
def served(request) -> set[int]:
    """Return the codes of all three ports, with every option switched on."""
    directory = shared_directory(request, "kinds")
    secret = directory / "secret"
    secret.write_text("a secret that brokers of one name share\n")
    secret.chmod(0o600)
    engine = start_engine(directory, broker={"access_control": "report"}, store={"ha_secret_file": str(secret)})
    codes = set().union(*(listener.dispatcher.codes for listener in engine.server._listeners))
    engine.stop()
    return codes


def test_each_code_of_the_dispatch_tables_is_classified_and_no_other(served):
    assert served == KINDS.keys()
    assert set(KINDS.values()) == {ADMIN, CLIENT, BROKER, READ}


def test_what_changes_the_broker_on_purpose_is_administration():
    administration = {code for code, kind in KINDS.items() if kind == ADMIN}
    assert administration == {
        17, 18, 215, 200, 225, 207, 25, 222, 314, 306, 316, 329, 309, 323,  # the broker
        100, 102, 205, 327, 216, 318,  # the name server
        3001, 3002, 3003, 3006, 3007, 3008,  # users and what they may
    }  # fmt: skip


def test_what_clients_and_brokers_do_all_day_is_not():
    for code in (10, 310, 320, 11, 361, 15, 34, 35, 36, 41, 42):
        assert kind_of(code) == CLIENT
    for code in (103, 104, 904, 322, 217):
        assert kind_of(code) == BROKER


def test_a_code_that_nobody_classified_is_refused_with_a_sentence():
    with pytest.raises(LookupError, match="request code 200050 is served, but"):
        kind_of(RequestCode.POP_MESSAGE)

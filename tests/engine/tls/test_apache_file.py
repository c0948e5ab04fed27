"""Apache's tls.properties: which keys are served, and what is said of the others."""

import pytest

from appliance.command_line import load
from appliance.engine.errors import StartError
from appliance.engine.tls.apache_file import read_tls_properties

FILE = """\
# as Apache's pages have it
tls.test.mode.enable=false
tls.server.need.client.auth = require
tls.server.keyPath=/etc/rocketmq/server.key
tls.server.certPath : /etc/rocket\\
    mq/server.pem
tls.server.authClient=true
tls.server.trustCertPath=/etc/rocketmq/c\\u0061.pem
"""


@pytest.fixture
def write(tmp_path):
    def written(text: str) -> str:
        path = tmp_path / "tls.properties"
        path.write_text(text)
        return str(path)

    return written


def test_the_keys_of_a_server_are_options(write):
    options, told = read_tls_properties(write(FILE))
    assert options == {
        "tlsCertFile": "/etc/rocketmq/server.pem", "tlsKeyFile": "/etc/rocketmq/server.key",
        "tlsClientCaFile": "/etc/rocketmq/ca.pem", "tlsClientAuth": "required",
    }  # fmt: skip
    assert told == []


def test_each_key_that_is_not_served_is_told(write):
    path = write(
        "tls.server.need.client.auth=optional\ntls.server.trustCertPath=ca.pem\ntls.server.keyPassword=very secret\n"
        "tls.client.certPath=x\ntls.server.mode=enforcing\ntls.sever.keyPath=y\n"
    )
    options, told = read_tls_properties(path)
    assert options == {}
    for key in (
        "server.need.client.auth=optional",
        "server.keyPassword",
        "client.certPath",
        "server.mode",
        "sever.keyPath",
        "test.mode",
    ):
        assert sum(f"tls.{key}" in sentence for sentence in told) == 1, (key, told)
    assert all(sentence.startswith(f"tlsConfigFile={path}: ") for sentence in told)
    assert "very secret" not in "".join(told)


def test_options_of_its_own_count_before_the_file(write, tmp_path):
    path = write(FILE)
    given = ["--data-dir", str(tmp_path / "data"), "--roles", "broker"]
    environment = {"ROCKETBOX_BROKER_TLS_CONFIG_FILE": path, "ROCKETBOX_BROKER_TLS_MODE": "permissive"}
    broker = load(given, environment)[0].broker
    assert (broker.tls_cert_file, broker.tls_client_auth) == ("/etc/rocketmq/server.pem", "required")
    own = load(given, environment | {"ROCKETBOX_BROKER_TLS_CERT_FILE": "own.pem"})[0].broker
    assert (own.tls_cert_file, own.tls_key_file) == ("own.pem", "/etc/rocketmq/server.key")


@pytest.mark.parametrize("text", [None, "x" * 70_000], ids=["missing", "too long"])
def test_a_file_that_cannot_be_read_refuses_the_start(write, tmp_path, text):
    path = write(text) if text else str(tmp_path / "none")
    with pytest.raises(StartError, match=r"tlsConfigFile=.*(cannot be read|is longer)"):
        read_tls_properties(path)


@pytest.mark.parametrize("mode", ["require", "REQUIRE", "Require"])
def test_certificates_are_required_in_any_case_of_letters(write, mode):
    options, told = read_tls_properties(write(FILE.replace("require", mode)))
    assert (options["tlsClientAuth"], options["tlsClientCaFile"], told) == ("required", "/etc/rocketmq/ca.pem", [])


def test_a_mode_that_is_none_is_told(write):
    options, [told] = read_tls_properties(write(FILE.replace("require", "required")))
    assert "tlsClientAuth" not in options
    assert "tls.server.need.client.auth='required' is none of Apache's values" in told


def test_the_last_line_may_end_in_a_backslash(write):
    options, _ = read_tls_properties(write("tls.server.keyPath=/etc/server.key\\"))
    assert options["tlsKeyFile"] == "/etc/server.key"


@pytest.mark.parametrize("value", ["a\\u0000b", "\\ud800"])
def test_a_path_that_cannot_be_refuses_the_start(write, value):
    with pytest.raises(StartError, match="tlsConfigFile="):
        read_tls_properties(write(f"tls.server.keyPath={value}\n"))

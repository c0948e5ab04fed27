"""`rocketbox certificate`: the pair that it makes serves TLS to clients that check, and what it refuses."""

import json
import os
import ssl
import stat

import pytest

from appliance.commands import certificate
from appliance.engine.errors import StartError
from appliance.engine.tls import self_signed
from appliance.engine.tls.certificate import Certificate
from tests.support.tls import make_pair


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def shown(capsys, *arguments):
    assert certificate.run(["show", *arguments, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def shake_hands(file, context, name):
    """A handshake in memory with a client that trusts this file alone, and checks the name."""
    client = ssl.create_default_context(cafile=file)
    client.verify_flags |= ssl.VERIFY_X509_STRICT
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    asking = client.wrap_bio(to_client, to_server, server_hostname=name)
    answering = context.wrap_bio(to_server, to_client, server_side=True)
    for side in (asking, answering, asking):
        try:
            side.do_handshake()
        except ssl.SSLWantReadError:
            pass
    return asking.getpeercert()


def test_a_client_that_trusts_the_file_checks_certificate_and_name(here, capsys):
    assert certificate.run(["make", "mq.example.org", "10.0.0.5", "::1", "--days", "30"]) == 0
    printed = capsys.readouterr().out
    pair = Certificate(str(here / "rocketbox.pem"), str(here / "rocketbox.key"))
    assert pair.fingerprint in printed
    for name in ("mq.example.org", "10.0.0.5", "::1"):
        assert shake_hands(here / "rocketbox.pem", pair.context, name)
    with pytest.raises(ssl.SSLCertVerificationError, match="match"):
        shake_hands(here / "rocketbox.pem", pair.context, "other.example.org")
    found = shown(capsys, "rocketbox.pem")
    assert found["names"] == ["mq.example.org", "10.0.0.5", "::1"]
    assert found["days_left"] == 29
    assert found["fingerprint"] == pair.fingerprint


def test_only_this_user_may_read_the_key(here):
    certificate.run(["make", "mq.example.org"])
    assert stat.S_IMODE((here / "rocketbox.key").stat().st_mode) == 0o600
    assert stat.S_IMODE((here / "rocketbox.pem").stat().st_mode) == 0o644
    assert "PRIVATE" not in (here / "rocketbox.pem").read_text()


def test_names_and_files_come_from_the_options_of_serve(here, capsys):
    (here / "box.toml").write_text(
        'bind = "0.0.0.0"\nadvertise = "mq.example.org"\n[broker]\ntlsCertFile = "a.pem"\ntlsKeyFile = "a.key"\n'
    )
    certificate.run(["make", "-c", "box.toml"])
    assert (here / "a.key").exists()
    capsys.readouterr()
    found = shown(capsys, "-c", "box.toml")
    assert found["file"] == "a.pem"
    assert found["names"][0] == "mq.example.org"
    assert "0.0.0.0" not in found["names"]


def test_files_that_exist_stay_unless_they_are_to_be_replaced(here):
    certificate.run(["make", "a"])
    before = (here / "rocketbox.pem").read_text()
    with pytest.raises(StartError, match="exists: --replace"):
        certificate.run(["make", "a"])
    assert (here / "rocketbox.pem").read_text() == before
    certificate.run(["make", "a", "--replace"])
    assert (here / "rocketbox.pem").read_text() != before
    Certificate("rocketbox.pem", "rocketbox.key")


def test_what_is_no_file_is_not_replaced(here):
    """As root the command would make a file of a device such as /dev/null."""
    os.mkfifo(here / "pipe")
    with pytest.raises(StartError, match="pipe is no file"):
        certificate.run(["make", "a", "--cert", "pipe", "--replace"])
    assert (here / "pipe").is_fifo()
    assert not (here / "rocketbox.key").exists()


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["a:80"], "A name must be"),
        (["0.0.0.0"], "must be what clients can connect to"),
        (["a\nb"], "A name must be"),
        ([f"n{number}" for number in range(65)], "at most 64 names"),
        (["a", "--days", "0"], "--days must be"),
        (["a", "--days", "4000"], "--days must be"),
        (["a", "--days"], "--days needs a value"),
        (["a", "--cert", "x", "--key", "x"], "two files"),
        (["a", "--cert", "missing/x"], "missing/x cannot be written"),
        (["a", "--nonsense", "x"], "There is no option --nonsense"),
    ],
    ids="port,everywhere,line,names,days,long,value,same,directory,option".split(","),
)
def test_what_cannot_be_made_is_a_sentence(here, arguments, reason):
    with pytest.raises(StartError, match=reason):
        certificate.run(["make", *arguments])
    assert [path for path in here.iterdir() if path.suffix == ".pem"] == []


def test_show_tells_of_a_file_that_is_no_certificate_and_of_an_expired_one(here, capsys):
    (here / "text").write_text("x")
    with pytest.raises(StartError, match="text has no certificate in PEM form"):
        certificate.run(["show", "text"])
    with pytest.raises(StartError, match="cannot be read: No such file"):
        certificate.run(["show", "gone"])
    with pytest.raises(StartError, match="Name a file"):
        certificate.run(["show"])
    make_pair(here, days=1)
    certificate.run(["show", "server.pem"])
    assert "it has expired" in capsys.readouterr().out
    assert shown(capsys, "server.pem")["days_left"] < 0


def test_without_the_library_it_says_so(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(StartError, match="need the package cryptography"):
        self_signed.show("any.pem")
    with pytest.raises(StartError, match="need the package cryptography"):
        certificate.run(["make", "a"])

"""The pair of files: what a start refuses, and what a change of the files does."""

import hashlib
import os
import ssl

import pytest
from cryptography.hazmat.primitives.asymmetric import ec

from appliance.engine.config import BrokerConfig
from appliance.engine.errors import StartError
from appliance.engine.tls.certificate import Certificate
from appliance.engine.tls.door import Door
from tests.support.remoting import ECHO
from tests.support.tls import make_pair


def served(peer):
    return peer.sock.getpeercert(binary_form=True)


def der_of(path):
    return ssl.PEM_cert_to_DER_cert(path.read_text())


def test_the_fingerprint_is_that_of_the_first_certificate(pair, tmp_path):
    other, _ = make_pair(tmp_path, "other")
    digest = hashlib.sha256(der_of(pair.certificate)).hexdigest().upper()
    with open(pair.certificate, "a") as file:
        file.write(other.read_text())
    assert Certificate(str(pair.certificate), str(pair.key)).fingerprint.replace(":", "") == digest


def test_its_end_is_logged_and_one_that_has_expired_is_served_with_a_warning(tmp_path, caplog):
    caplog.set_level("INFO")
    current, expired = make_pair(tmp_path, "current"), make_pair(tmp_path, "expired", days=1)
    Certificate(str(current[0]), str(current[1]))
    assert "it is valid until Dec  8 00:00:00 2119 GMT" in caplog.text
    assert "WARNING" not in caplog.text
    Certificate(str(expired[0]), str(expired[1]))
    assert "clients that check certificates refuse this one: certificate has expired" in caplog.text


@pytest.mark.parametrize(
    ("break_it", "reason"),
    [
        (lambda pair, tmp_path: pair.certificate.unlink(), "tlsCertFile=.*server.pem cannot be read: No such file"),
        (lambda pair, tmp_path: pair.key.unlink(), "tlsKeyFile=.*server.key cannot be read: No such file"),
        (lambda pair, tmp_path: pair.certificate.write_text("x"), "tlsCertFile=.*server.pem has no certificate in PEM"),
        (lambda pair, tmp_path: pair.certificate.write_bytes(bytes(5000)), "has no certificate in PEM form"),
        (lambda pair, tmp_path: pair.key.write_text("x"), "are no pair in PEM form"),
        (
            lambda pair, tmp_path: pair.certificate.write_text(pair.certificate.read_text()[:90]),
            "no certificate in PEM",
        ),
        (
            lambda pair, tmp_path: make_pair(tmp_path, "other")[1].rename(pair.key),
            "server.key does not belong to",
        ),
        (lambda pair, tmp_path: make_pair(tmp_path, password=b"x"), "server.key needs a password"),
        (lambda pair, tmp_path: make_pair(tmp_path, curve=ec.SECP256K1()), "no client could shake hands with"),
        (lambda pair, tmp_path: (pair.key.unlink(), pair.key.mkdir()), "server.key cannot be read: Is a directory"),
    ],
    ids="no certificate,no key,text,zeros,no key in it,cut,another's key,password,curve,directory".split(","),
)
def test_a_pair_that_cannot_be_loaded_is_a_clear_refusal(pair, tmp_path, break_it, reason):
    break_it(pair, tmp_path)
    with pytest.raises(StartError, match=reason):
        Certificate(str(pair.certificate), str(pair.key))


@pytest.mark.parametrize("given", [{}, {"tls_cert_file": "a"}, {"tls_key_file": "b"}], ids=["none", "one", "other"])
def test_a_mode_needs_both_files(given):
    with pytest.raises(StartError, match="tlsMode=permissive needs tlsCertFile and tlsKeyFile"):
        Door(BrokerConfig(tls_mode="permissive", **given), None, None)


def test_a_new_pair_is_served_and_connections_of_the_old_one_stay(rig, tmp_path):
    before = rig.peer()
    assert served(before) == der_of(rig.files[0])
    assert not rig.door.certificate.look()
    make_pair(tmp_path)
    assert rig.door.certificate.look()
    assert served(rig.peer()) == der_of(rig.files[0]) != served(before)
    assert before.ask(ECHO, {}, b"still").body == b"still"


def test_the_old_pair_stays_while_the_new_one_does_not_load(rig, tmp_path, caplog):
    old = der_of(rig.files[0])
    certificate, key = make_pair(tmp_path, "other")
    os.replace(certificate, rig.files[0])
    assert not rig.door.certificate.look()
    assert "the one before it stays: the key in tlsKeyFile=" in caplog.text
    assert served(rig.peer()) == old
    caplog.clear()
    assert not rig.door.certificate.look()
    assert not caplog.records, "once for a change"
    rig.files[1].unlink()
    assert not rig.door.certificate.look()
    assert served(rig.peer()) == old
    os.replace(key, rig.files[1])
    assert rig.door.certificate.look(), "the key has followed"
    new = der_of(rig.files[0])
    assert served(rig.peer()) == new != old
    make_pair(tmp_path, curve=ec.SECP256K1())
    assert not rig.door.certificate.look(), "no client could use it"
    assert served(rig.peer()) == new


def test_the_files_are_looked_at_while_the_server_runs(tmp_path, rigs, monkeypatch):
    monkeypatch.setattr("appliance.engine.tls.door.WATCH_S", 0.01)
    rig = rigs()
    old = der_of(rig.files[0])
    make_pair(tmp_path)
    while served(rig.peer()) == old:
        pass

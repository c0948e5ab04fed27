"""Files that options name: what is none refuses the start at once."""

import os
import socket
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from appliance.engine.access.sealing import sealer_of
from appliance.engine.errors import StartError
from appliance.engine.failover.stores.access import Access
from appliance.engine.failover.stores.etcd import _tls_context
from appliance.engine.remoting.client import RemotingClient
from appliance.engine.replication.shared_secret import read_secret
from appliance.engine.tls.apache_file import read_tls_properties
from appliance.engine.tls.certificate import Certificate
from appliance.engine.window.topics.registry import Registry
from tests.support.directories import shared_directory
from tests.support.tls import Authority, make_pair

OPTIONS = {
    "tlsCertFile": lambda bad, files: Certificate(bad, files[1]),
    "tlsKeyFile": lambda bad, files: Certificate(files[0], bad),
    "tlsClientCaFile": lambda bad, files: Certificate(*files[:2], "optional", bad),
    "tlsClientCrlFile": lambda bad, files: Certificate(*files[:2], "optional", files[2], bad),
    "tlsConfigFile": lambda bad, files: read_tls_properties(bad),
    "accessKeyFile": lambda bad, files: sealer_of(bad),
    "haSecretFile": lambda bad, files: read_secret(bad),
}
#: Read while the broker runs.
LATER = {
    "schemaRegistrySecretFile": lambda bad, files: Registry("http://127.0.0.1:1", bad)._ask(7),
    "haStoreCa": lambda bad, files: _tls_context(Access(ca=bad)),
    "haStoreKey": lambda bad, files: _tls_context(Access(certificate=files[0], key=bad)),
    "tlsKeyFile": lambda bad, files: RemotingClient("a:1", pair=(files[0], bad))._shaken_hands(socket.socket(), 1.0),
}


@pytest.fixture(scope="module")
def files(request):
    """A certificate, its key, and an authority."""
    directory = shared_directory(request, "files")
    return (*map(str, make_pair(directory)), str(Authority(directory).path))


@pytest.mark.parametrize("option", OPTIONS)
def test_a_file_without_an_end_refuses_the_start(option, files, tmp_path):
    pipe, huge = tmp_path / "pipe", tmp_path / "huge"
    huge.write_bytes(b"".join(Path(file).read_bytes() for file in files) + b"-----BEGIN X509 CRL-----\n")
    huge.chmod(0o600)
    os.truncate(huge, 10 << 30)
    with pytest.raises(StartError, match=option):
        OPTIONS[option](str(huge), files)
    for bad, reason in (("/dev/zero", "it is no regular file"), (str(tmp_path), "Is a directory")):
        with pytest.raises(StartError, match=f"{option}.* cannot be read: {reason}"):
            OPTIONS[option](bad, files)
    os.mkfifo(pipe)
    with ThreadPoolExecutor() as pool:
        try:
            refusal = pool.submit(OPTIONS[option], str(pipe), files).exception(20)
        finally:
            os.close(os.open(pipe, os.O_RDWR))  # ends the wait of one that opened it to read
    assert isinstance(refusal, StartError)
    assert "no regular file" in str(refusal)


@pytest.mark.parametrize("option", LATER)
def test_a_file_that_becomes_a_pipe_holds_nobody_up(option, files, tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with ThreadPoolExecutor() as pool:
        try:
            refusal = pool.submit(LATER[option], str(pipe), files).exception(20)
        finally:
            os.close(os.open(pipe, os.O_RDWR))  # ends the wait of one that opened it to read
    assert "no regular file" in str(refusal)

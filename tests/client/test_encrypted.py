"""Connections over TLS, by threads and by asyncio, against a real broker; the errors of what cannot be trusted, of
plain ports, and of connections that end at any byte of the handshake."""

import asyncio
import contextlib
import socket
import ssl
import threading

import pytest

from appliance.client import Client, InvalidOption, NoNameServer, NoRoute, Tls, aio
from appliance.engine.protocol.command import decode_frame, encode_command
from tests.support.client_steps import answer
from tests.support.directories import shared_directory
from tests.support.engine import RunningEngine
from tests.support.tcp_relay import TcpRelay
from tests.support.tls import make_pair
from tests.support.waiting import wait_for

PATIENT = 60.0
#: A message for each way that an answer leaves the server, and more than a record of TLS.
BODIES = [b"0", b"1", bytes(range(256)) * 4000]


class Site:
    def __init__(self, directory, mode="enforcing", **more):
        self.files = make_pair(directory, also=("127.0.0.1", "mq.example.org"))
        options = {"tls_mode": mode, "tls_cert_file": str(self.files[0]), "tls_key_file": str(self.files[1])}
        self.running = RunningEngine(directory / mode, broker=options | more)
        self.namesrv = str(self.running.engine.namesrv_address)
        self.tls = Tls(ca_file=self.files[0])


@pytest.fixture(scope="module")
def site(request):
    made = Site(shared_directory(request, "tls"))
    yield made
    made.running.stop()


def send_by_threads(namesrv, tls, timeout=PATIENT, bodies=BODIES[:1]):
    with Client(namesrv, tls=tls, timeout=timeout) as client:
        return [client.producer(retries=0).send("Orders", body) for body in bodies]


def send_by_asyncio(namesrv, tls, timeout=PATIENT, bodies=BODIES[:1]):
    async def work():
        async with aio.Client(namesrv, tls=tls, timeout=timeout) as client:
            return [await client.producer(retries=0).send("Orders", body) for body in bodies]

    return asyncio.run(work())


@pytest.fixture(params=[send_by_threads, send_by_asyncio], ids=["threads", "asyncio"])
def send(request):
    return request.param


def test_messages_go_and_come(site):
    with Client(site.namesrv, tls=site.tls, timeout=PATIENT) as client:
        producer = client.producer()
        pending = [producer.submit("Both", body) for body in BODIES * 8]
        ids = {one.result().message_id for one in pending}
        found = {}
        consumer = client.push_consumer("tls", start="first")
        consumer.subscribe("Both", handler=lambda message: found.update({message.message_id: message.body}))
        consumer.start()
        wait_for(lambda: ids <= set(found), "all messages")
    assert sorted(found.values()) == sorted(BODIES * 8)


def test_messages_go_and_come_with_asyncio(site):
    async def work():
        async with aio.Client(site.namesrv, tls=site.tls, timeout=PATIENT) as client:
            await asyncio.gather(*(client.producer().send("Loop", body) for body in BODIES))
            found = []
            async for message in client.pull_consumer("tls-loop", start="first").subscribe("Loop"):
                found.append(message.body)
                if len(found) == len(BODIES):
                    return found

    assert sorted(asyncio.run(work())) == sorted(BODIES)


def test_a_context_of_the_users_and_the_name_in_the_certificate(site, send):
    context = ssl.create_default_context(cafile=str(site.files[0]))
    assert send(site.namesrv, context)
    assert send(site.namesrv, Tls(ca_file=site.files[0], server_name="mq.example.org"))


@pytest.mark.parametrize(
    ("tls", "why"),
    [
        (lambda site: True, "certificate is not accepted: self.signed certificate"),
        (lambda site: Tls(ca_file=site.files[0], server_name="other.example.org"), "server_name=... the name in"),
    ],
    ids=["authority", "name"],
)
def test_a_certificate_that_is_not_trusted_says_so(site, send, tls, why):
    with pytest.raises(NoNameServer, match=why):
        send(site.namesrv, tls(site))


def test_a_plain_port_says_so(send, tmp_path):
    running = RunningEngine(tmp_path, broker={"tls_mode": "disabled"})
    try:
        with pytest.raises(NoNameServer, match="TLS"):
            send(str(running.engine.namesrv_address), True)
    finally:
        running.stop()


@pytest.mark.parametrize("said", [b"HTTP/1.1 400 Bad Request\r\n\r\n", b"\0\0\0\x40" + b"x" * 64, b""])
def test_a_server_of_something_else_says_so(send, said):
    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=_say, args=(listener, said), daemon=True).start()
        with pytest.raises(NoNameServer, match="TLS"):
            send(f"127.0.0.1:{listener.getsockname()[1]}", True)


def _say(listener, said):
    sock, _ = listener.accept()
    with sock:
        sock.recv(65536)
        sock.sendall(said)


def test_a_client_without_tls_is_told_that_it_may_be_needed(site, send):
    with pytest.raises(NoNameServer, match=r"if it requires TLS: Client\(tls=...\)"):
        send(site.namesrv, False)


@pytest.fixture
def mutual(tmp_path):
    """A name server without topics that requires a certificate of its clients: (address, both pairs of files)."""
    own = make_pair(tmp_path, "client", password=b"of the key")
    pair = make_pair(tmp_path, also=("127.0.0.1",))
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=str(own[0]))
    context.load_cert_chain(*pair)
    context.verify_mode = ssl.CERT_REQUIRED
    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=_knows_nothing, args=(listener, context), daemon=True).start()
        yield f"127.0.0.1:{listener.getsockname()[1]}", own, pair


def _knows_nothing(listener, context):
    with contextlib.suppress(OSError):
        while True:
            sock, _ = listener.accept()
            with contextlib.suppress(OSError), context.wrap_socket(sock, server_side=True) as served:
                while data := served.recv(65536):
                    question = decode_frame(data)
                    said = answer(17)
                    said.opaque = question.opaque
                    served.sendall(encode_command(said))


def test_a_client_certificate(mutual, send):
    address, own, pair = mutual
    known = Tls(ca_file=pair[0], cert_file=own[0], key_file=own[1], key_password="of the key")
    with pytest.raises(NoRoute):  # so it was served
        send(address, known)
    assert "of the key" not in repr(known)
    with pytest.raises(NoNameServer, match=r"requires a certificate of this client: Tls\(cert_file"):
        send(address, Tls(ca_file=pair[0]))
    with pytest.raises(InvalidOption, match="client certificate in"):
        send(address, Tls(ca_file=pair[0], cert_file=own[0], key_file=own[1]))


def test_files_that_cannot_be_used_are_named(tmp_path):
    with pytest.raises(InvalidOption, match=r"ca_file '/nowhere.*' cannot be read: No such file"):
        Client("127.0.0.1:1", tls=Tls(ca_file="/nowhere/ca.pem"))
    (tmp_path / "empty").write_text("")
    with pytest.raises(InvalidOption, match=r"ca_file .* cannot be used"):
        Client("127.0.0.1:1", tls=Tls(ca_file=tmp_path / "empty"))
    with pytest.raises(InvalidOption, match="but no cert_file"):
        Client("127.0.0.1:1", tls=Tls(key_file="x"))
    with pytest.raises(InvalidOption, match=r"tls is True, Tls\(...\) or an ssl.SSLContext"):
        Client("127.0.0.1:1", tls="yes")


@pytest.mark.parametrize("most", [0, 1, 300, 700])
def test_a_handshake_that_is_cut_off_anywhere_ends_the_call(site, send, most):
    """A relay passes so many of the server's bytes and closes. The next connection, not cut off, works."""
    with TcpRelay(site.namesrv) as relay:
        relay.cut_after = most
        with pytest.raises(NoNameServer, match=r"TLS|connection"):
            send(relay.address, site.tls)
        relay.cut_after = None
        assert send(relay.address, site.tls)

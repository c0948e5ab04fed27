"""Signed requests: against the recordings of official clients, and a broker that requires them. Secrets stay secret."""

import asyncio
import json
import logging
import pickle
import traceback

import pytest

from appliance.client import Client, ClientError, Credentials, InvalidOption, NoRoute, NotPermitted, Refused, aio
from appliance.client.core.signing import Signer
from appliance.engine.config import Secret
from appliance.engine.protocol.codes import RequestCode
from appliance.engine.protocol.command import RemotingCommand, decode_frame
from tests.support.directories import shared_directory
from tests.support.engine import Peer, RunningEngine
from tests.support.golden import VERSIONS, frames, transcripts
from tests.support.waiting import wait_for

#: Invented for the recordings.
RECORDED = {"goldenuser": "goldensecret1", "goldenadmin": "goldensecret2"}
ROOT, ANN = ("root", "the first one's secret"), ("ann", "ann's own secret")
PATIENT = 60.0


@pytest.mark.parametrize("version", VERSIONS)
def test_signatures_are_those_of_javas_clients(version):
    same = others = 0
    for path in transcripts(version):
        for line, frame in frames(path):
            if line["dir"] != "request" or (request := decode_frame(frame)).ext_fields.get("AccessKey") not in RECORDED:
                continue
            recorded = dict(request.ext_fields)
            user, token = recorded["AccessKey"], recorded.get("SecurityToken")
            for name in ("AccessKey", "SecurityToken", "Signature"):
                request.ext_fields.pop(name, None)
            signed = Signer(user, RECORDED[user], token).sign(request)
            same += signed == recorded
            others += signed != recorded
    assert same > 60
    assert others <= 12  # those were signed with a wrong secret, on purpose


@pytest.fixture(scope="module")
def guarded(request):
    """An engine that requires signatures, and the user ann who may send and read Orders."""
    first = Secret(json.dumps({"username": ROOT[0], "password": ROOT[1]}))
    options = {"access_control": "enforce", "init_authentication_user": first}
    running = RunningEngine(shared_directory(request, "guarded"), broker=options)
    peer = Peer(str(running.engine.broker_address))
    signer = Signer(*ROOT, None)

    def ask(code, fields, body=None):
        request = RemotingCommand(code, ext_fields=fields, body=b"" if body is None else json.dumps(body).encode())
        answer = peer.ask(code, signer.sign(request), request.body)
        assert answer.code == 0, answer

    for topic in ("Orders", "Secret"):
        fields = {"topic": topic, "defaultTopic": "TBW102", "readQueueNums": "2", "writeQueueNums": "2", "perm": "6"}
        ask(RequestCode.UPDATE_AND_CREATE_TOPIC, fields | {"topicFilterType": "SINGLE_TAG", "topicSysFlag": "0"})
    ask(RequestCode.AUTH_CREATE_USER, {"username": ANN[0]}, {"username": ANN[0], "password": ANN[1]})
    entries = [
        {"resource": resource, "actions": ["Pub", "Sub"], "decision": "Allow"}
        for resource in ("Topic:Orders", "Group:readers*")
    ]
    acl = {"subject": "User:ann", "policies": [{"policyType": "Custom", "entries": entries}]}
    ask(RequestCode.AUTH_CREATE_ACL, {"subject": "User:ann"}, acl)
    yield str(running.engine.namesrv_address)
    peer.close()
    running.stop()


def test_a_user_sends_and_consumes_with_threads(guarded):
    with Client(guarded, credentials=Credentials(*ANN), timeout=PATIENT) as client:
        ids = [client.producer().send("Orders", str(number)).message_id for number in range(4)]
        assert client.producer().send("Orders", bytes(range(256)) * 4000).message_id
        found = []
        consumer = client.push_consumer("readers-threads", start="first")
        consumer.subscribe("Orders", handler=lambda message: found.append(message.message_id))
        consumer.start()
        wait_for(lambda: set(ids) <= set(found), "all messages")
        polled = client.pull_consumer("readers-pulling", start="first").subscribe("Orders")
        assert wait_for(lambda: polled.poll(1.0), "messages")


def test_a_user_sends_and_consumes_with_asyncio(guarded):
    async def work():
        async with aio.Client(guarded, credentials=Credentials(*ANN), timeout=PATIENT) as client:
            sent = await client.producer().send("Orders", "x")
            async for message in client.pull_consumer("readers-asyncio", start="first").subscribe("Orders"):
                if message.message_id == sent.message_id:
                    return True

    assert asyncio.run(asyncio.wait_for(work(), PATIENT))


@pytest.mark.parametrize(
    ("topic", "credentials"),
    [("Secret", ANN), ("Orders", ("ann", "not ann's secret")), ("Orders", ("nobody", "of nobody")), ("Orders", None)],
    ids=["topic", "secret", "unknown", "unsigned"],
)
def test_the_error_of_a_refusal_says_what_is_needed(guarded, topic, credentials):
    signs = None if credentials is None else Credentials(*credentials)
    with Client(guarded, credentials=signs, timeout=PATIENT) as client:
        with pytest.raises(Refused, match=r"code 16, NO_PERMISSION.*Credentials\(user, secret\)") as raised:
            client.producer(retries=0).send(topic, "x")
        assert raised.value.code == 16
        assert not raised.value.maybe_stored
        reader = client.reader()
        # The name server does not show a topic to a user without a right on it.
        wanted = (NoRoute, "With access control") if topic == "Secret" else (NotPermitted, "Credentials")
        with pytest.raises(wanted[0], match=wanted[1]):
            reader.max_offset(reader.queues(topic)[0])


def test_no_repr_log_pickle_or_traceback_has_the_secret(guarded, caplog):
    caplog.set_level(logging.DEBUG)
    texts = []
    credentials = Credentials(*ANN, token="a token of ann's")
    with Client(guarded, credentials=credentials) as client:
        client.producer().send("Orders", "x")
        try:
            client.producer().send("Secret", "x")
        except ClientError as error:
            texts += traceback.TracebackException.from_exception(error, capture_locals=True).format()
        texts += [repr(credentials), str(credentials), repr(client.__dict__), repr(client._session.__dict__)]
    with pytest.raises(TypeError):
        pickle.dumps(credentials)
    texts.append(caplog.text)
    assert any("ann" in text for text in texts)
    assert not [text for text in texts if ANN[1] in text or "a token of" in text]


@pytest.mark.parametrize("wrong", [("", "secret!"), ("ann", ""), ("ann", None), ("ann", 7), ("ann", "secret!\ud800")])
def test_what_is_no_user_or_secret_is_refused_without_showing_it(wrong):
    with pytest.raises(InvalidOption, match="Credentials is a text") as raised:
        Credentials(*wrong)
    said = "".join(traceback.TracebackException.from_exception(raised.value, capture_locals=True).format())
    assert "secret!" not in "".join(line for line in said.splitlines() if "wrong" not in line)


def test_a_pair_in_place_of_credentials_is_refused_without_showing_it():
    with pytest.raises(InvalidOption, match=r"Credentials\(user, secret\), not tuple"):
        Client("127.0.0.1:1", credentials=("ann", "secret!"))


def test_they_come_from_the_environment(monkeypatch, tmp_path):
    path = tmp_path / "tools.yml"
    path.write_text("# of mqadmin\naccessKey: ann\nsecretKey: 'of a file: 1'\n")
    monkeypatch.setenv("ROCKETMQ_CREDENTIALS_FILE", str(path))
    assert signature(Credentials.from_environment()) == signature(Credentials("ann", "of a file: 1"))
    monkeypatch.setenv("ROCKETMQ_ACCESS_KEY", "bob")
    with pytest.raises(InvalidOption, match="ROCKETMQ_ACCESS_KEY is set, but ROCKETMQ_SECRET_KEY is not"):
        Client("127.0.0.1:1")
    monkeypatch.setenv("ROCKETMQ_SECRET_KEY", "of the environment")
    assert signature(Credentials.from_environment()) == signature(Credentials("bob", "of the environment"))
    with Client("127.0.0.1:1") as client:
        assert client._session.security.sign(RemotingCommand(105))["AccessKey"] == "bob"


def signature(credentials):
    return credentials.signer.sign(RemotingCommand(105, ext_fields={"topic": "T"}))


@pytest.mark.parametrize(
    ("text", "why"),
    [(None, "No such file"), ("accessKey: ann\n", "has no line 'secretKey: ...'"), ("\ufffe", "has no line")],
)
def test_a_file_without_them_is_named(tmp_path, text, why):
    path = tmp_path / "credentials"
    if text is not None:
        path.write_text(text)
    with pytest.raises(InvalidOption, match=why):
        Credentials.from_file(path)

"""Support bundles: secrets are planted wherever they could stand, and none is found in what is handed out."""

from __future__ import annotations

import io
import json
import logging
import time
import zipfile

import pytest

from appliance.commands import bundle as bundle_command
from appliance.console.alerts.models import AlertChannel
from appliance.console.models import AuditEntry, User
from appliance.console.users import tokens
from appliance.doctor.scrubbing import Scrubber
from tests.console.conftest import PASSWORD

PLANTED = {
    "environment": "env-Zq81-sesame",
    "password in a log": "log-Zq82-sesame",
    "token in a log": "rbx_Zq83sesameZq83sesame",
    "url": "url-Zq84-sesame",
    "query": "query-Zq85-sesame",
    "bearer": "bearer.Zq86.sesame",
    "body": "body-Zq87-sesame",
    "key": "key-Zq88-sesame",
    "channel address": "channel-Zq89-sesame",
    "channel secret": "channel-Zq90-sesame",
    "totp": "ZQ91SESAMEZQ91SE",
    "user": "vera-Zq92-sesame",
    "wrapped": "wrapped-Zq93-sesame",
    "audit": "audit-Zq94-sesame",
    "jwt": "eyJhbGciZq95.eyJzdWIiOiJ.sesame95",
    "set-up link": "Zq96sesameZq96sesame",
    "property": "property-Zq97-sesame",
}


@pytest.fixture
def planted(broker, topic, people, monkeypatch):
    """An installation full of secrets; what must not be found."""
    monkeypatch.setenv("DEPLOY_PASSWORD", PLANTED["environment"])
    person = User(username=PLANTED["user"], totp_secret=PLANTED["totp"], role="admin")
    person.set_password(PASSWORD)
    person.save()
    User.objects.create(username="ada", role="viewer")
    _, token = tokens.create(people["admin"], "deploy", "viewer")
    AlertChannel.objects.create(
        name="chat", kind="webhook", address=f"https://chat.example/{PLANTED['channel address']}",
        secret=PLANTED["channel secret"],
    )  # fmt: skip
    broker.sender.send(
        topic, PLANTED["body"].encode(), keys=[PLANTED["key"]], properties={"colour": PLANTED["property"]}
    )
    AuditEntry.objects.create(at_ms=1, actor="x", actor_kind="user", action="x", after={"why": PLANTED["audit"]})
    logger = logging.getLogger("appliance.test")
    for line in (
        f"the client said password={PLANTED['password in a log']}, and left",
        f"authorization: Bearer {PLANTED['bearer']}",
        f"token {PLANTED['token in a log']} was used",
        f"posting to https://robot:{PLANTED['url']}@chat.example/hook?sign={PLANTED['query']} failed",
        f"sent keys={PLANTED['key']} body={PLANTED['body']}",
        f'{{"client_secret": "{PLANTED["wrapped"]}", "n": 1}}',
        f"somebody signed in: {PLANTED['user']}",
        "admin: 1 of 1 topics changed by=ada, in canada",
        f"an id token came: {PLANTED['jwt']}",
        f"set up at /setup/{PLANTED['set-up link']}/",
        f"the environment has {PLANTED['environment']}",
        f"the channel at https://chat.example/{PLANTED['channel address']} did not answer",
        "an ordinary line about queue 7",
    ):
        logger.warning("%s", line)
    return [*PLANTED.values(), token, person.password, PASSWORD]


def texts_of(data: bytes) -> dict[str, str]:
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        return {name: archive.read(name).decode() for name in archive.namelist()}


def test_no_secret_leaves_with_it(client_as, planted):
    admin = client_as("admin")
    answer = admin.get("/system/bundle/file/")
    texts = texts_of(answer.content)
    for secret in planted:
        for name, text in texts.items():
            assert secret not in text, f"{name} holds {secret}"
    assert "an ordinary line about queue 7" in texts["log.txt"], "the rest is there"
    assert "the client said" in texts["log.txt"]
    assert "by=[left-out], in canada" in texts["log.txt"], "a short name, where it stands alone"
    manifest = json.loads(texts["manifest.json"])
    assert {one["name"] for one in manifest["files"]} == set(texts) - {"manifest.json"}
    assert AuditEntry.objects.filter(action="bundle.download").count() == 1


def test_what_would_be_in_it_is_shown_first(client_as, planted):
    admin = client_as("admin")
    page = admin.get("/system/bundle/").content.decode()
    for name in ("about.json", "log.txt", "options.json"):
        assert name in page
    assert "message bodies, keys and properties" in page
    assert not AuditEntry.objects.filter(action="bundle.download").exists()
    shown = admin.get("/system/bundle/?show=log.txt").content.decode()
    assert "an ordinary line about queue 7" in shown
    for secret in planted:
        assert secret not in shown.replace(f'value="{secret}"', "")
    assert client_as("operator").get("/system/bundle/").status_code == 403
    found = admin.get("/api/v1/system/bundle").json()
    assert {one["name"] for one in found["files"]} >= {"about.json", "log.txt"}


def test_the_command_beside_it(tmp_path, planted, monkeypatch, capsys):
    data = tmp_path / "installation"
    (data / "rocketbox").mkdir(parents=True)
    (data / "rocketbox" / "secret-key").write_text("key-of-sessions-Zq98")
    options = ["--data-dir", str(data), "--public-url", "https://mq.example/x"]
    assert bundle_command.run([str(tmp_path / "b.zip"), *options, "--json"]) == 0
    manifest = json.loads(capsys.readouterr().out)
    texts = texts_of((tmp_path / "b.zip").read_bytes())
    assert {one["name"] for one in manifest["files"]} == set(texts) - {"manifest.json"}
    assert (tmp_path / "b.zip").stat().st_mode & 0o777 == 0o600
    for secret in (*planted, "key-of-sessions-Zq98"):
        assert not [name for name, text in texts.items() if secret in text]
    assert bundle_command.run(["--manifest", *options]) == 0
    assert "doctor.json" in capsys.readouterr().out
    assert bundle_command.run([]) == 2


@pytest.mark.parametrize(
    "text",
    [
        'password: "x Zq99 y"', "PASSWORD=Zq99", "db_password='Zq99'", "https://a:Zq99@b/c", "amqp://Zq99@b",
        "apiKey=Zq99", "Set-Cookie: Zq99", "secret_key: Zq99", "Basic Zq99Zq99", "unique_key=Zq99",
        "-----BEGIN PRIVATE KEY-----\nZq99\n-----END PRIVATE KEY-----", "pbkdf2_sha256$1$Zq99$x", "the token is Zq99",
    ],
)  # fmt: skip
def test_what_looks_like_a_secret_is_taken_out(text):
    assert "Zq99" not in Scrubber().text(f"before {text} behind")
    assert "behind" in Scrubber().text(f"before {text} behind")


@pytest.mark.parametrize(
    "word", ["pass", "a", "a.pass", "://", "https://a", "body", "eyJ-", "-----BEGIN A-----", "password is "]
)  # fmt: skip
def test_a_log_that_strangers_fill_holds_nobody_up(word):
    """A line of the log has 2,000 characters: the pattern for names of secrets took 16 s for one, in one piece."""
    line = "1795406400000 WARNING " + word * (2000 // len(word))
    begin = time.thread_time()
    Scrubber(["sekret1"], ["bob"]).long_text("\n".join([line] * 20))
    assert time.thread_time() - begin < 3


def test_a_long_log_is_scrubbed_wherever_its_pieces_end():
    lines = [f"{1795406400000 + at} INFO said password=Zq{at:04d} and token rbx_Zq{at:06d}, ok" for at in range(1000)]
    text = "\n".join(lines)
    found = Scrubber(["sekret1"]).long_text(text)
    assert "Zq" not in found
    assert found.count("\n") == 999
    assert found.endswith(", ok")

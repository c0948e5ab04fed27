"""Brokers with access control: 4.9 with its plain_acl.yml, 5.3 with users and policies. A user needs only the rights to
read the topic, and to use the group that tools read with."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from appliance.engine.protocol.codes import RequestCode
from spark_reports.source.network.access import Credentials
from spark_reports.source.network.errors import Refused
from tests.spark_reports.network.reading import offsets, read
from tests.spark_reports.network.servers import Target
from tests.support.apache import ApacheRocketMQ, ask
from tests.support.directories import shared_directory
from tests.support.peer import send_fields
from tests.support.waiting import wait_for

ADMIN, READER = Credentials("administrator", "all-and-more"), Credentials("reader12", "read-only-secret")
MINE = {"accessKey": READER.access_key, "secretKey": READER.secret_key}
PLAIN_ACL = f"""
globalWhiteRemoteAddresses: []
accounts:
  - accessKey: {ADMIN.access_key}
    secretKey: {ADMIN.secret_key}
    admin: true
  - accessKey: {READER.access_key}
    secretKey: {READER.secret_key}
    admin: false
    defaultTopicPerm: DENY
    defaultGroupPerm: DENY
    topicPerms:
      - Orders=SUB
    groupPerms:
      - TOOLS_CONSUMER=SUB
"""
_PROVIDER = "org.apache.rocketmq.auth.{0}.provider.{1}{2}Provider"
USERS = {
    "authenticationEnabled": True,
    "authorizationEnabled": True,
    "authenticationProvider": _PROVIDER.format("authentication", "Default", "Authentication"),
    "authorizationProvider": _PROVIDER.format("authorization", "Default", "Authorization"),
    "authenticationMetadataProvider": _PROVIDER.format("authentication", "Local", "AuthenticationMetadata"),
    "authorizationMetadataProvider": _PROVIDER.format("authorization", "Local", "AuthorizationMetadata"),
    "initAuthenticationUser": json.dumps({"username": ADMIN.access_key, "password": ADMIN.secret_key}),
    "innerClientAuthenticationCredentials": json.dumps({"accessKey": ADMIN.access_key, "secretKey": ADMIN.secret_key}),
}
POLICIES = [
    {"resource": "Topic:Orders", "actions": ["Sub", "Get"], "sourceIps": [], "decision": "Allow"},
    {"resource": "Group:TOOLS_CONSUMER", "actions": ["Sub"], "sourceIps": [], "decision": "Allow"},
]


def as_admin(broker: str, code: int, fields: dict[str, Any], body: object = None) -> None:
    said = b"" if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
    header, _ = ask(broker, code, ADMIN.sign({name: str(value) for name, value in fields.items()}, said), said)
    assert header["code"] == 0, header


@pytest.fixture(scope="module", params=["4.9.7", "5.3.3"])
def guarded(request: pytest.FixtureRequest) -> Iterator[Target]:
    """A broker with a hundred messages in Orders and in Secrets, and a user who may read Orders."""
    version = request.param
    scratch: Path = shared_directory(request, "guarded")
    if version == "4.9.7":
        place = scratch / "broker" / "home" / "conf"
        place.mkdir(parents=True)
        (place / "plain_acl.yml").write_text(PLAIN_ACL)
    config = {"aclEnable": True} if version == "4.9.7" else USERS
    with ApacheRocketMQ(version, config=config, scratch=scratch, heap="256m") as apache:
        for topic in ("Orders", "Secrets"):
            for number in range(100):
                as_admin(apache.broker, RequestCode.SEND_MESSAGE_V2, send_fields(topic, number % 4), b"%d" % number)
            wait_for(lambda topic=topic: ask(apache.namesrv, 105, {"topic": topic})[0]["code"] == 0, "routed")
        if version != "4.9.7":
            user = {"username": READER.access_key, "password": READER.secret_key, "userType": "Normal"}
            as_admin(apache.broker, RequestCode.AUTH_CREATE_USER, {"username": READER.access_key}, user)
            subject = f"User:{READER.access_key}"
            policies = {"subject": subject, "policies": [{"policyType": "Custom", "entries": POLICIES}]}
            as_admin(apache.broker, RequestCode.AUTH_CREATE_ACL, {"subject": subject}, policies)
        yield Target(version, apache.namesrv, apache.broker)


def test_a_user_who_may_read_the_topic_reads_it(guarded):
    found = offsets(read(guarded.namesrv, topic="Orders", **MINE))
    assert found == {("Orders", queue): list(range(25)) for queue in range(4)}


@pytest.mark.parametrize(
    "changes", [{"secretKey": "not-the-secret-of-this"}, {"accessKey": "nobody12"}, {"topic": "Secrets"}]
)
def test_others_are_refused_in_the_brokers_words_without_a_secret(guarded, changes):
    options = {"topic": "Orders", **MINE, **changes}
    with pytest.raises(Refused) as failed:
        read(guarded.namesrv, **options)
    assert str(failed.value).startswith(guarded.broker)
    assert f"code {1 if guarded.kind == '4.9.7' else 16}" in str(failed.value)
    assert options["secretKey"] not in str(failed.value)


def test_nobody_is_refused(guarded):
    with pytest.raises(Refused, match=guarded.broker):
        read(guarded.namesrv, topic="Orders")

"""Signatures as official clients make them: recorded frames, and fields that the content may lack."""

import pytest

from appliance.engine.protocol.command import RemotingCommand, decode_frame
from appliance.engine.protocol.signature import ACCESS_KEY, SIGNATURE, SigningKey, is_signed_by, signed_content
from tests.support.golden import GOLDEN, frames

#: Invented for the recordings.
SECRETS = {"goldenuser": "goldensecret1", "goldenadmin": "goldensecret2"}
ZONES = {"__ZONE_NAME": "z1", "__ZONE_MODE": "true"}


def signed_requests() -> list[RemotingCommand]:
    """Return every recorded request with a signature of a known user."""
    found = []
    for path in sorted((GOLDEN / "wire").rglob("*.jsonl.gz")):
        for line, frame in frames(path):
            if line["dir"] == "request" and line["header"].get("extFields", {}).get(ACCESS_KEY) in SECRETS:
                found.append(decode_frame(frame))
    return found


def keys_of(request: RemotingCommand) -> tuple[SigningKey, ...]:
    return (SigningKey(SECRETS[request.ext_fields[ACCESS_KEY]]),)


def is_good(request: RemotingCommand, keys: tuple[SigningKey, ...] | None = None) -> bool:
    return is_signed_by(keys_of(request) if keys is None else keys, request.ext_fields, request.body)


def test_every_recorded_signature_of_a_right_secret_is_good_and_no_other():
    requests = signed_requests()
    bad = [request for request in requests if not is_good(request)]
    assert len(requests) > 180
    # The wrong secret is on purpose.
    assert len(bad) == 12
    assert {request.ext_fields[SIGNATURE] for request in bad} >= {"U7byvcMy8Kuj9tWhe8+ApWjhFJE="}


@pytest.mark.parametrize("part", ["body", "value", "signature", "name"])
def test_a_request_of_which_one_byte_is_another_is_not_signed(part):
    request = next(one for one in signed_requests() if one.code == 310 and is_good(one))
    fields = request.ext_fields
    if part == "body":
        request.body = request.body[:-1] + bytes((request.body[-1] ^ 1,))
    elif part == "value":
        fields["b"] += "x"
    elif part == "signature":
        fields[SIGNATURE] = fields[SIGNATURE].swapcase()
    else:
        fields[ACCESS_KEY] = "goldenadmin"
        assert not is_good(request, (SigningKey(SECRETS["goldenuser"]),))
    assert not is_good(request)


V4_PROPERTIES = "KEYS\x01k1\x02UNIQ_KEY\x017F00000159694E0E2F2A691F8DF80000\x02WAIT\x01true\x02TAGS\x01T\x02"
#: Recorded: user, its fields, and the signature. A body stands under "".
VECTORS = {
    "V1": ("goldenadmin", {}, "R6D47+RAvvFIXvxsEcoye5/1HVE="),
    "V2": ("goldenuser", {"topic": "AclTopicPub"}, "ydyD5FMy325RLI0+aEWlBED5/18="),
    "V3": (
        "goldenuser",
        {"topic": "AclTopicPub", "SecurityToken": "security-token-1"},
        "aRZtykxW0Ft1MISO65v1cS9F0bU=",
    ),
    "V4": (
        "goldenuser",
        {
            "a": "PG_AclGood", "b": "AclTopicPub", "c": "TBW102", "d": "4", "e": "0", "f": "0", "g": "1795254875640",
            "h": "0", "i": V4_PROPERTIES, "j": "0", "k": "false", "m": "false", "n": "broker-a", "": "signed",
        },
        "ZfFTwpEcp11TtSNbXLSQTeVXvKI=",
    ),
    "V5": (
        "goldenadmin",
        {"username": "goldenuser", "": '{"userStatus":"enable","username":"goldenuser"}'},
        "T9ouvJQN4YqX0mRmQ3EKw9zO0WA=",
    ),
    "V6": (
        "goldenadmin",
        {
            "attributes": "", "defaultTopic": "TBW102", "force": "false", "order": "false", "perm": "6",
            "readQueueNums": "2", "topic": "AclCreated", "topicFilterType": "SINGLE_TAG", "topicSysFlag": "0",
            "writeQueueNums": "2",
        },
        "FOY1JqfZXLX5Lsq3xWxpyiPgSXM=",
    ),
    "V7": (
        "goldenadmin",
        {
            "accessKey": "goldenthird", "admin": "false", "groupPerms": "CG_AclGood=SUB", "secretKey": "goldensecret3",
            "topicPerms": "AclTopicPub=PUB",
        },
        "cxXJcOtsI1ES91tLbKXL0l4/Elo=",
    ),
    "V8": (
        "goldenuser",
        {
            "_UNIQUE_KEY_QUERY": "false", "beginTimestamp": "0", "endTimestamp": "9223372036854775807", "key": "k1",
            "maxNum": "8", "topic": "AclTopicPub",
        },
        "8eoGw5zSSH4h0QffsrHyc9DsmMU=",
    ),
    "V8 of clients that leave a field out": (
        "goldenuser",
        {
            "_UNIQUE_KEY_QUERY": "false", "beginTimestamp": "0", "endTimestamp": "9223372036854775807", "key": "k1",
            "maxNum": "8", "topic": "AclTopicPub",
        },
        "jqn2nxgKVF+hTy/xm6D32tADIBk=",
    ),
    "V10": ("goldenadmin", {"username": "goldenuser"}, "ttoZPy/ivpuiFkGI3tIY2MzkUA0="),
}  # fmt: skip


@pytest.mark.parametrize("number", VECTORS)
def test_each_vector_is_good_and_with_another_secret_it_is_not(number):
    user, given, signature = VECTORS[number]
    fields = {ACCESS_KEY: user, SIGNATURE: signature} | given
    body = fields.pop("", "").encode()
    assert is_signed_by((SigningKey(SECRETS[user]),), fields, body)
    assert not is_signed_by((SigningKey("another secret"),), fields, body)


def test_the_vector_of_a_wrong_secret_is_bad():
    fields = {ACCESS_KEY: "goldenuser", SIGNATURE: "U7byvcMy8Kuj9tWhe8+ApWjhFJE=", "topic": "AclTopicPub"}
    assert not is_signed_by((SigningKey(SECRETS["goldenuser"]),), fields, b"")  # V9


def test_either_of_two_secrets_signs():
    request = next(one for one in signed_requests() if is_good(one))
    other = SigningKey("another secret")
    assert is_good(request, (other, *keys_of(request)))
    assert is_good(request, (*keys_of(request), other))
    assert not is_good(request, (other,))
    assert not is_good(request, ())


@pytest.mark.parametrize("added", [{}, ZONES, {"_UNIQUE_KEY_QUERY": "true"}, ZONES | {"_UNIQUE_KEY_QUERY": "false"}])
def test_fields_that_some_clients_add_behind_the_signature(added):
    key = SigningKey("s3cret s3cret")
    fields = {ACCESS_KEY: "u", "topic": "T"}
    fields[SIGNATURE] = key.sign(signed_content(fields, b""))
    assert is_signed_by((key,), fields | added, b"")
    assert not is_signed_by((key,), fields | added | {"x": "y"}, b"")


def test_fields_that_others_sign_with_the_rest():
    key = SigningKey("s3cret s3cret")
    fields = {ACCESS_KEY: "u", "topic": "T", "_UNIQUE_KEY_QUERY": "true"} | ZONES
    fields[SIGNATURE] = key.sign(signed_content(fields, b""))
    assert is_signed_by((key,), fields, b"")


def test_names_are_ordered_as_java_orders_them():
    fields = {"\uffff": "2", "\U00010000": "1", "Z": "Z", "_": "_", "a": "a"}
    assert signed_content(fields, b"!") == b"Z_a12!"  # a surrogate is less than U+FFFF


@pytest.mark.parametrize("value", ["\ud800", "é€\U0001f600", "", "\x01\x02"])
def test_any_text_can_be_looked_at(value):
    fields = {ACCESS_KEY: "u", "i": value, SIGNATURE: value}
    assert not is_signed_by((SigningKey("x" * 200),), fields, b"\xff")

"""The handle of a message that waits for its time, as Java writes and reads it."""

import base64

import pytest

from appliance.engine.protocol.recall_handle import RecallHandle, decode_recall_handle, encode_recall_handle
from tests.support.golden import GOLDEN, frames

KEY = "7F00000133624E0E2F2A69120C7A0001"


def packed(text: str) -> str:
    return base64.urlsafe_b64encode(text.encode()).decode()


def test_a_recorded_handle() -> None:
    handles = [
        fields["recallHandle"]
        for line, _ in frames(GOLDEN / "wire" / "5.3.3" / "timer-recall.jsonl.gz")
        if "recallHandle" in (fields := line["header"].get("extFields") or {})
    ]
    assert len(handles) > 3
    for handle in handles:
        found = decode_recall_handle(handle)
        assert (found.topic, found.broker_name, found.at_ms % 1000) == ("TimerTopic", "broker-a", 1)
        assert encode_recall_handle(found.topic, found.broker_name, found.at_ms - 1, found.unique_key) == handle


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (packed("v1 T b 5 K"), RecallHandle("T", "b", 5, "K")),
        (packed("v1 T b 5 K").rstrip("="), RecallHandle("T", "b", 5, "K")),
        (packed("v1 T b +5 K more words"), RecallHandle("T", "b", 5, "K more words")),
        (packed("v1 T b 5x K"), RecallHandle("T", "b", -1, "K")),
        (packed("v1 T b  K x"), RecallHandle("T", "b", -1, "K x")),
        (packed("v1 T b 99999999999999999999 K"), RecallHandle("T", "b", -1, "K")),
        (packed("v1 T b 9999999999999999999 K"), RecallHandle("T", "b", -1, "K")),
        (packed("v1   5 K"), RecallHandle("", "", 5, "K")),
        (packed("v1 Thé b 5 K"), RecallHandle("Thé", "b", 5, "K")),
    ],
)
def test_what_is_read(text: str, found: RecallHandle) -> None:
    assert decode_recall_handle(text) == found


@pytest.mark.parametrize(
    "text",
    [
        "", "=", "====", "A", "AAAAA", "not base64!", "+/+/", packed("v1 T b 5 K")[:-1] + "====", packed("v2 T b 5 K"),
        packed("v1 T b 5"), packed("v1 T b 5 "), packed("v1 T b 5 K\x02DELAY\x013"), packed(" v1 T b 5 K"), "é" * 8,
        packed("v1 T b 5 K") + "\n",
    ],
)  # fmt: skip
def test_what_is_none(text: str) -> None:
    with pytest.raises(ValueError, match="recall handle is invalid"):
        decode_recall_handle(text)


@pytest.mark.parametrize("key", ["order 17", "order ", " order", " ", "a  b", "Bestellung ä 1"])
def test_a_key_with_blanks_is_never_taken_for_another(key: str) -> None:
    assert decode_recall_handle(encode_recall_handle("T", "b", 4, key)) == RecallHandle("T", "b", 5, key)

"""The properties by which copies of dead letters name their job, and forged ones."""

import pytest

from appliance.engine.broker.replay.provenance import (
    REPLAY_JOB,
    REPLAY_PROOF,
    REPLAY_SEQ,
    REPLAYED,
    Provenance,
    mark_of,
    proof_of,
    provenance_of,
    sequence_in,
)
from appliance.engine.protocol.properties import encode_properties


def test_a_copy_says_its_job_and_its_number():
    text = encode_properties({"TAGS": "a", REPLAY_JOB: "j1", REPLAY_SEQ: "7", REPLAYED: "2"})
    assert sequence_in(text, "j1", "") == 7
    assert sequence_in(text, "j2", "") is None
    assert mark_of("j1") in text.encode()


def test_a_number_counts_with_the_proof_that_only_the_job_can_make():
    said = {REPLAY_JOB: "j1", REPLAY_SEQ: "7"}
    for proof, found in ((proof_of("key", 7), 7), (proof_of("key", 8), None), (proof_of("", 7), None), ("é", None)):
        assert sequence_in(encode_properties(said | {REPLAY_PROOF: proof}), "j1", "key") == found
    assert sequence_in(encode_properties(said), "j1", "key") is None


@pytest.mark.parametrize(
    ("properties", "found"),
    [
        ({}, Provenance(None, None, 0)),
        ({REPLAY_JOB: "j", REPLAY_SEQ: "0", REPLAYED: "1"}, Provenance("j", 0, 1)),
        ({REPLAY_JOB: "j"}, Provenance(None, None, 0)),
        ({REPLAY_JOB: "j", REPLAY_SEQ: "-1", REPLAYED: "x"}, Provenance(None, None, 0)),
        ({REPLAY_SEQ: "3", REPLAYED: "9" * 11}, Provenance(None, None, 0)),
        ({REPLAY_JOB: "j", REPLAY_SEQ: "²", REPLAYED: "٣"}, Provenance(None, None, 0)),
    ],
)
def test_what_is_no_number_counts_as_absent(properties, found):
    assert provenance_of(properties) == found

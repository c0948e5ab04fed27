"""YAML texts of people: values as they are written, and no secret in what is said of a text that is none."""

import pytest

from appliance.console.system.plain_yaml import load
from appliance.engine.access.apache_accounts import accounts_of
from appliance.engine.errors import InvalidInput


@pytest.mark.parametrize(
    "secret", ["0x1234abcd", "0123456701", "1_000_000_0", "4815162342.50", "2024-01-01", "1:20:30:40", "4815162342"]
)
def test_a_secret_that_looks_like_a_number_stays_as_it_is(secret):
    text = f"accounts:\n- {{accessKey: 1_0, secretKey: {secret}, admin: yes}}\n- {{accessKey: on, secretKey: ~}}"
    (one, other), _ = accounts_of(load(text, as_written=True))
    assert (one.account.name, one.account.secrets, one.account.is_super) == ("1_0", (secret,), True)
    assert (other.account.name, "a secret has" in other.refusal) == ("on", True)


def test_definitions_have_numbers():
    assert load("a: [0x10, 1.5, yes, ~, text]") == {"a": [16, 1.5, True, None, "text"]}


@pytest.mark.parametrize("value", ["!Zq12word", "!!int Zq12'word", "!!bool Zq12", '!!float "Zq12"', "&Zq12 a\n&Zq12 b"])
def test_a_secret_is_not_in_what_is_said_of_a_text_that_is_no_yaml(value):
    with pytest.raises(InvalidInput) as caught:
        load(f"secretKey: {value}")
    assert "no YAML" in str(caught.value)
    assert "Zq12" not in str(caught.value)


def test_letters_that_are_wrong_are_named():
    with pytest.raises(InvalidInput, match=r"expected ',' or ']', but got '<stream end>' \(1:6\)"):
        load("a: [b")

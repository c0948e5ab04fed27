"""Passwords that are refused because attackers try them first."""

import pytest

from appliance.console.models import User
from appliance.console.sign_in.password_rules import generate_password, is_weak, password_problem


@pytest.mark.parametrize(
    "password",
    [
        "password1234", "Password1234!", "P@ssw0rd2026", "passwordpassword", "welcome2026!", "P@ssw0rd-1!",
        "admin12345678", "rocketmq2026", "rocketbox!!", "qwertyuiop1", "abcdefghij", "abcdefghijkl", "zyxwvutsrqpo",
        "aaaaaaaaaaaa", "abababababab", "abcabcabcabc", "iloveyou2026", "letmein-letmein", "Summer2026!!",
        "1q1q1q1q1q1q",
        "olga.petrovna1", "Olga.Petrovna-2026",
    ],
)  # fmt: skip
def test_what_is_tried_first_is_refused(password):
    assert is_weak(password, "olga.petrovna")
    assert password_problem(password, User(username="olga.petrovna"))


@pytest.mark.parametrize(
    "password",
    [
        "correct horse battery", "Vogel-Nest-42-Kran", "a good long one", "another good one", "quite another one",
        "a good long password", "second password", "tr0ub4dor&3xyq", "九月的风吹过山岗与河流",
    ],
)  # fmt: skip
def test_what_is_not_is_taken(password):
    assert password_problem(password, User(username="ada")) is None


def test_what_we_make_ourselves_is_taken():
    assert all(password_problem(generate_password()) is None for _ in range(200))

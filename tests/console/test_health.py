"""/healthz and /readyz."""

import pytest


def test_healthz_answers_without_an_engine(client, db):
    response = client.get("/healthz")
    assert (response.status_code, response.content) == (200, b"ok\n")


def test_readyz_says_ok_per_check_and_nothing_else(client, engine, db):
    response = client.get("/readyz")
    assert response.status_code == 200
    assert response.json() == {"status": "ok", "checks": {"broker": "ok", "store": "ok"}}


def test_readyz_refuses_when_one_check_fails_and_keeps_the_reason_to_itself(client, engine, db):
    engine.checks["store"] = {"ok": False, "detail": "write failed: /var/lib/rocketbox"}
    response = client.get("/readyz")
    assert response.status_code == 503
    assert response.json() == {"status": "not ok", "checks": {"broker": "ok", "store": "not ok"}}
    assert b"/var" not in response.content


def test_readyz_is_not_ready_when_nothing_was_checked(client, engine, db):
    engine.checks.clear()
    assert client.get("/readyz").status_code == 503


def test_readyz_is_not_ready_without_an_engine(client, db):
    response = client.get("/readyz")
    assert response.status_code == 503
    assert response.json() == {"status": "not ok", "checks": {"engine": "not ok"}}


@pytest.mark.parametrize("path", ["/healthz", "/readyz", "/metrics", "/static/console.css"])
def test_no_address_takes_a_post(client, engine, db, path):
    assert client.post(path).status_code == 405
    assert client.head(path).status_code == 200

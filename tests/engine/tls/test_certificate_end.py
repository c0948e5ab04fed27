"""The end of a certificate is reported beforehand: as a check, a need and a metric of the pair that is served now."""

import os
import time

import pytest

from appliance.doctor.certificates import look_at_certificate
from appliance.doctor.diagnosis import Diagnosis
from tests.support.engine import start_engine
from tests.support.tls import make_pair
from tests.support.waiting import wait_for

#: Days from the beginning of `make_pair`'s certificates to today.
TODAY = int((time.time() - 1_577_836_800) // 86_400)


@pytest.fixture
def serving(tmp_path):
    """`serving(days)` starts an engine whose certificate ends in so many days; all are stopped at the end."""
    engines = []

    def start(days):
        certificate, key = make_pair(tmp_path, days=TODAY + days)
        broker = {"tls_mode": "permissive", "tls_cert_file": str(certificate), "tls_key_file": str(key)}
        engines.append(start_engine(tmp_path / "data", broker))
        return engines[-1]

    yield start
    for engine in engines:
        engine.stop()


def found(engine):
    """(code, health) of the checks about certificates, and {code: level} of the needs."""
    window = engine.window
    checks = {check.name: (check.sentence.code, check.level) for check in window.checks()}
    needs = {need.sentence.code: need.level for need in window.overview.snapshot().needs}
    return (
        {name: told for name, told in checks.items() if name.startswith("certificate")},
        {code: level for code, level in needs.items() if code.startswith("certificate")},
    )


@pytest.mark.parametrize(
    ("days", "code", "health", "level"),
    [
        (40, "certificate_valid", "ok", None),
        (20, "certificate_ends_soon", "warning", "watch"),
        (5, "certificate_ends_soon", "warning", "act"),
        (-1, "certificate_expired", "warning", "act"),
    ],
)
def test_its_end_is_a_check_a_need_and_a_metric(serving, days, code, health, level):
    engine = serving(days)
    checks, needs = found(engine)
    assert checks == {"certificate": (code, health)}
    assert needs == ({code: level} if level else {})
    assert engine.window.metrics()['certificate_days_left{certificate="certificate"}'] in (days - 1, days)


def test_what_is_served_counts_and_a_pair_that_does_not_load_is_told(serving, tmp_path, monkeypatch):
    monkeypatch.setattr("appliance.engine.tls.door.WATCH_S", 0.01)
    engine = serving(40)
    other, key = make_pair(tmp_path, "other", days=TODAY + 5)
    os.replace(other, tmp_path / "server.pem")
    wait_for(lambda: "certificate_stays" in found(engine)[1], "the files are no pair")
    checks, needs = found(engine)
    assert checks["certificate"][0] == "certificate_valid", "the one before it is served"
    assert needs == {"certificate_stays": "act"}
    os.replace(key, tmp_path / "server.key")
    wait_for(lambda: found(engine)[1] == {"certificate_ends_soon": "act"}, "the new pair is served")


def test_doctor_tells_of_the_end_of_files_that_do_not_fit_and_of_a_key_that_others_may_read(tmp_path):
    def lines(**options):
        certificate, key = make_pair(tmp_path, **options)
        key.chmod(0o600)
        diagnosis = Diagnosis()
        look_at_certificate(diagnosis, str(certificate), str(key))
        return [(line.level, line.text) for line in diagnosis.lines]

    assert lines()[0][0] == "ok"
    for days, words in ((TODAY + 5, "valid for 4 more days"), (1, "certificate has expired")):
        [(level, text)] = lines(days=days)
        assert level == "warn"
        assert words in text
    [(level, text)] = lines(password=b"x")
    assert level == "fail"
    assert "needs a password" in text
    certificate, key = make_pair(tmp_path)
    key.chmod(0o640)
    diagnosis = Diagnosis()
    look_at_certificate(diagnosis, str(certificate), str(key))
    assert [line.level for line in diagnosis.lines] == ["ok", "warn"]

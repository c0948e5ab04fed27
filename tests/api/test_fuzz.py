"""Schemathesis: every request gets an answer that the description allows.

At night it also sends each value at the bounds of what the description allows, and beyond: thousands of requests."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import schemathesis
from django.core.wsgi import get_wsgi_application
from hypothesis import HealthCheck, settings
from schemathesis.checks import CHECKS
from schemathesis.config import SchemathesisConfig

from appliance.api.api import openapi
from appliance.console.reports import acts
from appliance.console.reports.runner import ReportRunner
from tests.support.effort import NIGHTLY, effort

pytestmark = pytest.mark.django_db
EXAMPLES = effort(5, 25, 200)
PHASES = {"coverage": {"enabled": NIGHTLY}}

described = schemathesis.openapi.from_dict(openapi(), config=SchemathesisConfig.from_dict({"phases": PHASES}))
described.app = get_wsgi_application()


@schemathesis.serializer("application/x-ndjson")
def lines(context: schemathesis.SerializationContext, value: Any) -> bytes:
    """Return any bytes as a body: lines that are no JSON are refused, or counted by the job."""
    return value if isinstance(value, bytes) else str(value).encode("utf-8", "replace")


# The description declares cursors, entity tags and names as text, and most texts are none that the server issued.
EXCLUDED = CHECKS.get_by_names(["positive_data_acceptance"])


@pytest.fixture
def headers(by_token) -> dict[str, str]:
    return {"Authorization": f"Bearer {by_token('admin', 'may_read_bodies').secret}", "Host": "localhost"}


@pytest.fixture(autouse=True)
def runner() -> Iterator[None]:
    """A report runner that is not started, so that runs stay waiting."""
    acts.use(ReportRunner())
    yield
    acts.use(None)


@described.parametrize()
@settings(
    max_examples=EXAMPLES, deadline=None, derandomize=True, database=None, suppress_health_check=list(HealthCheck)
)
def test_every_answer_is_as_described(case, headers):
    case.call_and_validate(headers=headers, excluded_checks=EXCLUDED)

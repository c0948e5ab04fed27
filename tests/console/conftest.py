"""Engines that pages see, one that runs and one that does not; people who have signed in."""

import time
from pathlib import Path

import pytest
from django.contrib.sessions.backends.db import SessionStore
from django.test import Client, RequestFactory

from appliance import runtime
from appliance.command_line import ServeOptions
from appliance.console.audit import refused_acts
from appliance.console.audit.refused_sign_ins import entry_log
from appliance.console.history import series
from appliance.console.history.recorder import Recorder
from appliance.console.models import Setting, User
from appliance.console.sign_in import identity, second_factor, set_up
from appliance.console.sign_in.lockout import lockout
from appliance.engine.config import EngineConfig
from appliance.engine.engine import Engine
from tests.support import strict_templates
from tests.support.budgets import give_time
from tests.support.directories import shared_directory
from tests.support.engine import start_engine

PASSWORD = "correct horse battery"


class IdleEngine(Engine):
    """The real engine and its real window, never started: what needs a broker is refused as the product refuses it.

    checks: what `health` says; tests change it.
    """

    def __init__(self, data_dir: Path) -> None:
        super().__init__(EngineConfig(data_dir=data_dir, roles=frozenset({"namesrv"})))
        self.broker_address = "10.0.0.5:10911"
        self.namesrv_address = "10.0.0.5:9876"
        self.checks: dict[str, dict[str, object]] = {
            "store": {"ok": True, "detail": "/var/lib/rocketbox is writable"},
            "broker": {"ok": True, "detail": "accepts connections"},
        }

    def health(self) -> dict[str, dict[str, object]]:
        return dict(self.checks)


def pretend_running(engine, bind: str = "127.0.0.1", up_s: float = 0, **options) -> None:
    """Make an engine, whether it runs or not, the one that pages see."""
    serve_options = ServeOptions(console=True, bind=bind, http_port=8080, ready_file=None, notices=(), **options)
    runtime.set_running(runtime.Running(engine, serve_options, "10.0.0.5:8080", time.monotonic() - up_s))


@pytest.fixture
def serve(tmp_path: Path):
    """`serve(bind=...)` makes an idle engine the one that pages see; returns the engine."""
    made = []

    def start(bind: str = "127.0.0.1", up_s: float = 0, **options) -> IdleEngine:
        made.append(IdleEngine(tmp_path / "data"))
        pretend_running(made[-1], bind, up_s, **options)
        return made[-1]

    yield start
    runtime.set_running(None)
    for engine in made:
        engine.loop.close()


@pytest.fixture
def engine(serve):
    return serve()


@pytest.fixture(autouse=True)
def _templates_ask_for_what_there_is():
    """Fail a test whose template uses an attribute that does not exist; Django would show nothing."""
    asked: list[str] = []
    strict_templates.watch(asked.append)
    yield
    strict_templates.unwatch()
    assert not asked


@pytest.fixture(autouse=True)
def _a_fresh_door(settings, tmp_path: Path, monkeypatch):
    """Fast password hashes, no lockout, no set-up link, a data directory of the test's own."""
    settings.PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
    lockout.clear()
    second_factor.lockout.clear()
    monkeypatch.setattr(entry_log, "_lines", 0)
    monkeypatch.setattr(refused_acts, "_logs", {})
    monkeypatch.setattr(set_up, "_secret", None)
    monkeypatch.setattr(set_up, "_closed", False)
    (tmp_path / "data" / "rocketbox").mkdir(parents=True)
    monkeypatch.setattr(runtime, "_place", runtime.Place(tmp_path / "data"))


@pytest.fixture(autouse=True)
def _pages_have_time(monkeypatch):
    give_time(monkeypatch)


@pytest.fixture
def people(db):
    """One user of each role, without grants, by role; the set-up is done."""
    Setting.objects.update_or_create(key="set-up", defaults={"value": set_up.DONE})
    made = {}
    for role in ("viewer", "operator", "admin"):
        made[role] = User(username=f"the-{role}", role=role)
        made[role].set_password(PASSWORD)
        made[role].save()
    return made


def signed_in(username: str, password: str = PASSWORD, way: str = "password", **client_options) -> Client:
    """Return a browser with a signed-in user. The audit log has no line of this, as it has after the sign-in form."""
    client = Client(**client_options)
    user = identity.authenticate(username, password)
    assert user is not None, f"{username} does not come in"
    request = RequestFactory(**client_options).get("/")
    request.session = SessionStore()
    request.client_address = request.META["REMOTE_ADDR"]
    identity.sign_in(request, user, way)
    request.session.save()
    client.cookies["rocketbox_session"] = request.session.session_key
    client.cookies["rocketbox_csrf"] = request.META["CSRF_COOKIE"]
    return client


@pytest.fixture
def client_as(people):
    """`client_as("operator", "may_read_bodies")`: a browser of a user with this role and these grants.

    With role "" it is not signed in. The password was given just now; `age_login(client)` makes that long ago.
    """

    def make(role: str, *grants: str, **client_options) -> Client:
        if role == "":
            return Client(**client_options)
        User.objects.filter(pk=people[role].pk).update(**dict.fromkeys(grants, True))
        return signed_in(f"the-{role}", **client_options)

    return make


def age_login(client: Client, seconds: float = 3600) -> None:
    """Make the last time the password was given `seconds` ago."""
    session = client.session
    session["confirmed_at"] -= seconds
    session.save()


@pytest.fixture(scope="session")
def _one_broker(request):
    """A real engine for the whole session: each test makes topics of its own."""
    engine = start_engine(shared_directory(request, "broker"))
    yield engine
    engine.stop()


@pytest.fixture
def broker(_one_broker):
    """A real engine that pages see; its window."""
    pretend_running(_one_broker)
    yield _one_broker.window
    runtime.set_running(None)


@pytest.fixture
def topic(broker, request) -> str:
    """A topic of this test's own, with four queues."""
    name = "t-" + "".join(c if c.isalnum() else "-" for c in request.node.name)[:90]
    broker.topic_commands.create(name, read_queues=4, write_queues=4)
    return name


@pytest.fixture
def recorded():
    """`recorded()` has everything measured once, now, as the history's thread does every 30 seconds."""
    recorder = Recorder(runtime.place().directory)
    series.use(recorder)
    yield recorder.step
    series.use(None)
    recorder.request_stop()
    recorder._close()

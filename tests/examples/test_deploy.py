"""The files of examples/deploy: each is read by its own program, if that is installed, and fits RocketBox."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from appliance import http_server, request_bodies
from appliance.command_line import load
from appliance.console.health import metrics_views as metrics
from appliance.console.live import web_sockets
from tests.support.directories import shared_directory
from tests.support.engine import RunningEngine

ROOT = Path(__file__).resolve().parents[2]
FILES = ROOT / "examples" / "deploy"
_PARTS = json.loads((ROOT / "tests/console/upstream_metrics.json").read_text(encoding="utf-8")).values()
UPSTREAM = {one["name"] for part in _PARTS if isinstance(part, list) for one in part if "absent" not in one}


def text(name: str) -> str:
    return (FILES / name).read_text(encoding="utf-8")


def rules() -> list[dict]:
    (group,) = yaml.safe_load(text("rocketbox-alerts.yml"))["groups"]
    return group["rules"]


@pytest.fixture(scope="module")
def names(request):
    """Names of the metrics on a broker's /metrics."""
    running = RunningEngine(shared_directory(request, "deploy"))
    shown = metrics.prometheus_text(running.window.metrics()) + metrics.upstream_text(running.window.upstream_metrics())
    running.stop()
    return set(re.findall(r"^# TYPE (\w+)", shown, re.MULTILINE)) | UPSTREAM


@pytest.mark.parametrize("rule", rules(), ids=lambda rule: rule["alert"])
def test_an_alert_asks_for_what_metrics_has(rule, names):
    asked = set(re.findall(r"\b(?:rocketbox|rocketmq)_\w+", rule["expr"]))
    assert asked <= names
    assert asked or rule["expr"] == 'up{job="rocketbox"} == 0'
    assert {"severity"} == set(rule["labels"])
    assert rule["annotations"]["summary"]


def test_prometheus_reads_the_rules_and_scrapes_by_the_name_that_they_ask_for():
    found = yaml.safe_load(text("prometheus.yml"))
    assert found["rule_files"] == ["rocketbox-alerts.yml"]
    assert [one["job_name"] for one in found["scrape_configs"]] == ["rocketbox"]


def test_the_container_is_started_as_one_that_clients_reach():
    (service,) = yaml.safe_load(text("compose.yml"))["services"].values()
    command, *arguments = service["command"]
    assert command == "serve"
    config, options = load(arguments, {"ROCKETBOX_DATA_DIR": "/data", "ROCKETBOX_BIND": "0.0.0.0"})
    assert (config.broker.broker_name, config.advertise) == ("broker-a", "mq.example.org")
    assert options.console
    assert {port.rpartition(":")[2] for port in service["ports"]} == {
        str(port) for port in (config.namesrv_port, config.broker_port, options.http_port)
    }
    dockerfile = (FILES / service["build"] / "Dockerfile").read_text(encoding="utf-8")
    kind, *words = service["healthcheck"].pop("test")
    options = " ".join(
        f"--{name.replace('_', '-')}={service['healthcheck'][name]}" for name in ("interval", "timeout", "start_period")
    )
    assert f"HEALTHCHECK {options} {kind} {json.dumps(words)}" in dockerfile


def test_proxies_let_the_largest_body_through_and_wait_longer_than_the_live_tail_is_silent():
    largest = max(request_bodies.TAKES.values())
    assert largest <= 32 << 20
    assert "client_max_body_size 32m;" in text("nginx.conf")
    assert "max_size 32MiB" in text("Caddyfile")
    read_timeout = re.search(r"proxy_read_timeout (\d+)s;", text("nginx.conf"))
    assert read_timeout is not None
    assert int(read_timeout[1]) > 2 * web_sockets.HEARTBEAT_S
    server_timeout = re.search(r"timeout server (\d+)s\n", text("haproxy.cfg"))
    tunnel_timeout = re.search(r"timeout tunnel (\d+)s\n", text("haproxy.cfg"))
    assert server_timeout is not None
    assert tunnel_timeout is not None
    assert min(int(server_timeout[1]), int(tunnel_timeout[1])) > 2 * web_sockets.HEARTBEAT_S
    # No proxy keeps idle connections, which the console closes after KEEPALIVE_S.
    assert http_server.KEEPALIVE_S < 60
    assert "option httpclose" in text("haproxy.cfg").partition("\nbackend ")[2]
    assert "keepalive off" in text("Caddyfile")
    assert "keepalive" not in text("nginx.conf")


def test_the_unit_stops_later_than_the_server_and_does_not_repeat_a_refused_start():
    unit = dict(re.findall(r"^(\w+)=(.*)$", text("rocketbox.service"), re.MULTILINE))
    assert int(unit["TimeoutStopSec"]) > http_server.WORKER_STOP_LIMIT_S
    assert unit["RestartPreventExitStatus"] == "2"
    assert int(unit["LimitNOFILE"]) >= 65_536


def test_systemd_knows_each_line_of_the_unit(tmp_path):
    if shutil.which("systemd-analyze") is None:
        pytest.skip("systemd is not installed")
    unit = tmp_path / "rocketbox.service"
    unit.write_text(text("rocketbox.service").replace("/opt/rocketbox/bin/rocketbox", "/bin/true"))
    ran = subprocess.run(
        ["systemd-analyze", "verify", str(unit)], capture_output=True, text=True, timeout=60, check=False
    )
    assert (ran.returncode, ran.stderr) == (0, "")

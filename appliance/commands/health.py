"""`rocketbox health`: is the server with these options ready? For containers, which have no other client."""

from __future__ import annotations

import http.client
import json
import os
import socket
import sys
from collections.abc import Sequence

from ..engine.host_port import local_host
from ..engine.plain_text import plain

LIMIT_S = 4.0


def run(arguments: Sequence[str]) -> int:
    """Return 0 if every check passes, else 1, and print one line with the reason. Takes the options of `serve`."""
    from ..command_line import load

    config, options = load(arguments, os.environ)
    host = local_host(options.bind)
    try:
        if options.console:
            problem = _problem(host, options.http_port)
        else:
            port = config.broker_port if "broker" in config.roles else config.namesrv_port
            socket.create_connection((host, port), LIMIT_S).close()
            problem = ""
    except OSError as error:
        problem = f"no answer: {error.strerror or error}"
    except (http.client.HTTPException, ValueError):
        problem = "another program answers"
    print(f"rocketbox: not ready: {plain(problem)}" if problem else "ready", file=sys.stderr if problem else sys.stdout)
    return 1 if problem else 0


def _problem(host: str, port: int) -> str:
    """Return the failed checks of /readyz, "" if there are none."""
    connection = http.client.HTTPConnection(host, port, timeout=LIMIT_S)
    connection.request("GET", "/readyz", headers={"Host": "localhost"})
    response = connection.getresponse()
    found = json.loads(response.read(65_536))
    connection.close()
    if response.status == 200:
        return ""
    return ", ".join(name for name, state in found["checks"].items() if state != "ok") or f"status {response.status}"

"""`rocketbox health`: is the server with these options ready? For containers, which have no other client."""

from __future__ import annotations

import http.client
import json
import os
import socket
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ..engine.host_port import local_host
from ..engine.plain_text import plain

if TYPE_CHECKING:
    from ..command_line import ServeOptions

LIMIT_S = 4.0


def run(arguments: Sequence[str]) -> int:
    """Return 0 if every check passes, else 1, and print one line with the reason. Takes the options of `serve`."""
    from ..command_line import load

    config, options = load(arguments, os.environ)
    host = local_host(options.bind)
    try:
        if options.console:
            problem = _problem(_connection(host, options))
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


def _connection(host: str, options: ServeOptions) -> http.client.HTTPConnection:
    if options.https is None:
        return http.client.HTTPConnection(host, options.http_port, timeout=LIMIT_S)
    import ssl

    # Without a look at the certificate, as nothing secret is sent: after files that do not load were put there, the
    # server goes on with the pair before them, and a container that restarted it would not start again.
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return http.client.HTTPSConnection(host, options.http_port, timeout=LIMIT_S, context=context)


def _problem(connection: http.client.HTTPConnection) -> str:
    """Return the failed checks of /readyz, "" if there are none."""
    connection.request("GET", "/readyz", headers={"Host": "localhost"})
    response = connection.getresponse()
    found = json.loads(response.read(65_536))
    connection.close()
    if response.status == 200:
        return ""
    return ", ".join(name for name, state in found["checks"].items() if state != "ok") or f"status {response.status}"

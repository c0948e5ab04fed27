"""`rocketbox serve` with a console that has short time-outs and takes few connections; stands before the command as a
prefix of `support.server.Server`."""

import sys
from typing import Any

from appliance import http_connections, http_server, http_worker, https_connections
from appliance.http_server import ConsoleServer
from appliance.main import main

#: Value that the tests which use this program expect.
PATIENCE_S = 1.0
#: Longer than a body's patience, and shorter than what a large one has earned.
SILENCE_S = 3.0
CONNECTIONS = 10
CONNECTIONS_EACH = 6

http_connections.HEAD_TIMEOUT_S = http_connections.STALL_S = PATIENCE_S
https_connections.HANDSHAKE_S = PATIENCE_S
http_worker.LOOK_S = 1
http_connections.CONNECTIONS = CONNECTIONS
http_connections.CONNECTIONS_EACH = CONNECTIONS_EACH


class Impatient(ConsoleServer):
    """`request_bodies` can be imported when Django is there."""

    def load(self) -> Any:
        application = super().load()
        from appliance import request_bodies

        request_bodies.GRACE_S = PATIENCE_S
        request_bodies.SILENCE_S = SILENCE_S
        return application


if __name__ == "__main__":
    http_server.ConsoleServer = Impatient
    sys.exit(main(sys.argv[sys.argv.index("serve") :]))

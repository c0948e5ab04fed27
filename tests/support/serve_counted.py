"""`rocketbox serve` that counts the requests which its console works on at the same time; stands before the command
as a prefix of `support.server.Server`.

Requests with the same header `X-Together: <number> <words>` belong together. When Django begins with one of them, it is
held until each of so many is held as well, or waits for its turn. Each answer says in `X-Under-Way` how many of them
were held at the same time, at most, by then. So the figure does not depend on the machine's speed, and without turns it
is the whole number.
"""

import sys
import threading
from collections import Counter
from typing import Any

from appliance import http_server
from appliance.http_server import ConsoleServer
from appliance.main import main

#: Longest wait for the others, which no test comes near to.
LIMIT_S = 60.0


class Together:
    """Requests that belong together, by the header's value. Any thread."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._waiting: Counter[str] = Counter()
        self._held: Counter[str] = Counter()
        self._most: Counter[str] = Counter()
        self._met: set[str] = set()

    def waits(self, which: str, step: int) -> None:
        with self._changed:
            self._waiting[which] += step
            self._changed.notify_all()

    def begin(self, which: str) -> None:
        """Hold a request until all are held or wait; once that was so, none is held."""
        with self._changed:
            self._held[which] += 1
            self._most[which] = max(self._most[which], self._held[which])
            self._changed.notify_all()
            self._changed.wait_for(lambda: self._all_are_there(which), LIMIT_S)

    def end(self, which: str) -> int:
        """Return how many were there at the same time, at most."""
        with self._changed:
            self._held[which] -= 1
            return self._most[which]

    def _all_are_there(self, which: str) -> bool:
        if self._waiting[which] + self._held[which] >= int(which.split()[0]):
            self._met.add(which)
        return which in self._met


class Counted(ConsoleServer):
    """The application can be imported when Django is there."""

    def load(self) -> Any:
        application = super().load()
        from appliance.console.middleware import Outermost
        from appliance.console.serving.turns import Turn

        together = Together()
        begin, answer = Turn.begin, Outermost.__call__

        async def counted_begin(turn: Turn) -> None:
            which = dict(turn.scope["headers"]).get(b"x-together", b"0").decode()
            together.waits(which, 1)
            try:
                await begin(turn)
            finally:
                together.waits(which, -1)

        def counted_answer(layer: Outermost, request: Any) -> Any:
            which = request.headers.get("x-together")
            if which is None:
                return answer(layer, request)
            together.begin(which)
            try:
                response = answer(layer, request)
            finally:
                most = together.end(which)
            response.headers["X-Under-Way"] = str(most)
            return response

        Turn.begin = counted_begin  # type: ignore[method-assign]
        Outermost.__call__ = counted_answer  # type: ignore[method-assign]
        return application


if __name__ == "__main__":
    http_server.ConsoleServer = Counted  # type: ignore[misc]
    sys.exit(main(sys.argv[sys.argv.index("serve") :]))

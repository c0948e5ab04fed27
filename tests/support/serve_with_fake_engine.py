"""`rocketbox serve` around an engine that does what a test asks for: the process alone is tested with it.

FAKE_ENGINE holds one word: "" (behaves), "refuse" (StartError), "slow-start" (2 s), "slow-stop" (1 s), "held-stop"
(until FAKE_ENGINE_LOG has a file beside it that ends in .go), "stuck-stop" (never stops), "stuck-thread" (all but a
thread stops), "crash" (an exception in start). FAKE_ENGINE_LOG names a file that receives a line for each step.
"""

import os
import sys
import threading
import time
import types

from appliance.engine.errors import StartError

BEHAVIOUR = os.environ.get("FAKE_ENGINE", "")


def note(step: str) -> None:
    with open(os.environ["FAKE_ENGINE_LOG"], "a", encoding="utf-8") as log:
        log.write(f"{step} {os.getpid()} django={'django' in sys.modules} gunicorn={'gunicorn' in sys.modules}\n")


class WireAudit:
    def after(self, series: str, n: int, limit: int = 200) -> tuple[str, list[object]]:
        """Return no acts: there are no administrators. The console calls this one last time at the end."""
        return series, []


class Window:
    def __init__(self) -> None:
        self.wire_audit = WireAudit()

    def metrics(self) -> dict[str, float]:
        return {"messages_put_total": 3, "connections": 1}

    def health(self) -> dict[str, dict[str, object]]:
        return {"store": {"ok": True, "detail": "/secret/path"}}


class Engine:
    def __init__(self, config: object) -> None:
        self.window = Window()
        self.broker_address = "127.0.0.1:10911"
        self.namesrv_address = None
        self.certificate = None

    def start(self) -> None:
        note("starting")
        if BEHAVIOUR == "refuse":
            raise StartError("The broker port 10911 is taken.")
        if BEHAVIOUR == "crash":
            raise RuntimeError("a mistake of ours")
        if BEHAVIOUR == "slow-start":
            time.sleep(2)
        if BEHAVIOUR == "stuck-thread":
            threading.Thread(target=time.sleep, args=[60], name="stuck", daemon=True).start()
        note("started")

    def stop(self) -> None:
        if BEHAVIOUR == "slow-stop":
            time.sleep(1)
        if BEHAVIOUR == "held-stop":
            while not os.path.exists(os.environ["FAKE_ENGINE_LOG"] + ".go"):
                time.sleep(0.01)
        if BEHAVIOUR == "stuck-stop":
            time.sleep(60)
        note("stopped")


if __name__ == "__main__":
    module = types.ModuleType("appliance.engine.engine")
    module.Engine = Engine  # type: ignore[attr-defined]
    sys.modules["appliance.engine.engine"] = module
    from appliance.main import main

    sys.exit(main())

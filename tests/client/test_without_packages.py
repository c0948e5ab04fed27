"""The client where neither msgspec nor zlib-ng nor anything else is installed: in a process that cannot import them."""

import os
import subprocess
import sys
from pathlib import Path

pytest_plugins = ("appliance.pytest_rocketbox",)

ROOT = Path(__file__).resolve().parents[2]

PROGRAM = """
import sys

allowed = {*sys.stdlib_module_names, "appliance"}

class OnlyPython:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] not in allowed:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, OnlyPython())

from appliance.client import Client
from appliance.engine.protocol import header_codecs, record

assert header_codecs._json_decode.__module__ == "appliance.engine.protocol.plain_json"
assert record.crc32.__module__ == "zlib"
server, topic, group = sys.argv[1:]
with Client(server, timeout=60) as client:
    sent = client.producer().send(topic, "äpfel " * 1000, keys=["order-17"], properties={"region": "用"})
    for message in client.pull_consumer(group, start="first").subscribe(topic):
        assert (message.message_id, message.text) == (sent.message_id, "äpfel " * 1000)
        print(message.keys, message.properties["region"])
        break
"""


def test_it_sends_and_consumes(rocketbox, rocketmq_topic, rocketmq_group):
    ran = subprocess.run(
        [sys.executable, "-S", "-c", PROGRAM, rocketbox.namesrv, rocketmq_topic, rocketmq_group],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": str(ROOT), "PYTHONUTF8": "1"},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "['order-17'] 用\n", "")

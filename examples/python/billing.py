"""Bills orders until it is stopped: `python billing.py [NAMESERVER]`, 127.0.0.1:9876 unless told otherwise.

What a service does that gets its messages handed to functions. An order that cannot be billed now comes again, later;
one that never can is a dead letter at once. SIGTERM or Ctrl-C ends it: what is being billed is finished, and the next
run goes on behind it. Start it twice, and the two share the work.
"""

from __future__ import annotations

import sys

from appliance.client import Client, ClientError, ReceivedMessage, Reject, Retry

TOPIC, GROUP = "orders", "billing-service"


def bill(message: ReceivedMessage) -> None:
    if not message.keys:
        raise Reject("an order without a number cannot be billed")
    if message.properties.get("paid") == "later" and message.attempt == 1:
        raise Retry(after=1)
    # In one piece: other threads print, too.
    print(f"billed {message.keys[0]}, attempt {message.attempt}\n", end="", flush=True)


def main(nameserver: str) -> int:
    try:
        with Client(nameserver) as client:
            billing = client.push_consumer(GROUP, start="first")
            billing.subscribe(TOPIC, tags="paid", handler=bill)
            billing.run()
    except ClientError as error:  # its text says what to do
        print(f"billing.py: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:9876"))

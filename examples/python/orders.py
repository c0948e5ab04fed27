"""Sends orders and bills them: `python orders.py [NAMESERVER]`, 127.0.0.1:9876 unless told otherwise.

What a service does, in one file: a producer that learns what was stored, and a member of a group that goes on where it
left off. Run it twice: the second run bills what the second run sent, and nothing twice.
"""

from __future__ import annotations

import sys

from appliance.client import Client, ClientError

TOPIC, GROUP = "orders", "billing"


def main(nameserver: str, count: int = 3) -> int:
    try:
        with Client(nameserver) as client:
            producer = client.producer("shop")
            sent = {
                producer.send(TOPIC, f"order {number}", tags="paid", keys=[f"order-{number}"]).message_id
                for number in range(count)
            }
            print(f"sent {len(sent)}")
            with client.pull_consumer(GROUP, start="first") as billing:
                billing.subscribe(TOPIC, tags="paid")
                for message in billing:
                    print(f"billed {message.text!r} of {message.queue}")
                    sent.discard(message.message_id)
                    if not sent:
                        break
    except ClientError as error:  # its text says what to do
        print(f"orders.py: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:9876"))

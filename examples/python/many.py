"""Sends many messages and some later ones: `python many.py [NAMESERVER]`, 127.0.0.1:9876 unless told otherwise.

`send_many` keeps some hundred messages on their way and says of each, in order, where it is or why not; a reminder is
delivered at its time, and may be taken back until then.
"""

from __future__ import annotations

import sys
from datetime import timedelta

from appliance.client import Client, ClientError, Message

TOPIC, REMINDERS = "measurements", "reminders"


def main(nameserver: str, count: int = 1000) -> int:
    try:
        with Client(nameserver) as client:
            producer = client.producer("many")
            stored = 0
            for outcome in producer.send_many(Message(TOPIC, f"{number} V") for number in range(count)):
                if isinstance(outcome, ClientError):  # another program may go on with the next
                    raise outcome
                stored += 1
            print(f"stored {stored}")
            reminder = producer.send(REMINDERS, "pay", delay=timedelta(days=1))
            producer.recall(reminder)
            print("a reminder was sent and taken back")
    except ClientError as error:  # its text says what to do
        print(f"many.py: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:9876"))

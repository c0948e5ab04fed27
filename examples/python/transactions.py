"""Orders in a database, and a message for each that is there: `python transactions.py [NAMESERVER [DATABASE]]`.

An order that is saved is announced, and one that is not is not, wherever this process dies: the message
is stored first and delivered once the order is. What a run leaves undecided, a later one is asked about. Run it twice.
"""

from __future__ import annotations

import sqlite3
import sys
import uuid
from contextlib import closing

from appliance.client import Client, ClientError, Decision, ReceivedMessage

TOPIC, GROUP = "paid-orders", "shop-transactions"


def main(nameserver: str, path: str) -> int:
    with closing(sqlite3.connect(path)) as database:
        database.execute("CREATE TABLE IF NOT EXISTS orders (id TEXT PRIMARY KEY, price INTEGER CHECK (price > 0))")

        def check(message: ReceivedMessage) -> Decision:
            """Called in a thread of the producer's, when a broker was not told."""
            with closing(sqlite3.connect(path)) as own:
                saved = own.execute("SELECT 1 FROM orders WHERE id = ?", (message.keys[0],)).fetchone()
            return Decision.COMMIT if saved else Decision.ROLLBACK

        try:
            with Client(nameserver) as client:
                producer = client.transactional_producer(GROUP, check=check)
                for price in (10, -1, 30):
                    order = uuid.uuid4().hex
                    try:
                        with producer.transaction(TOPIC, f"paid {price}", keys=[order]), database:
                            database.execute("INSERT INTO orders VALUES (?, ?)", (order, price))
                    except sqlite3.IntegrityError as error:
                        print(f"not saved, and not told: {error}")
                    else:
                        print(f"saved and told: {price}")
        except ClientError as error:  # its text says what to do
            print(f"transactions.py: {error}", file=sys.stderr)
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:], *("127.0.0.1:9876", "orders.db")[len(sys.argv) - 1 :]))

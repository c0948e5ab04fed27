"""Facts and snapshots for tests of the reports: small ones by hand, and weeks of a shop from a seed."""

from __future__ import annotations

import random
from datetime import date, timedelta

from spark_reports.facts.tables import TABLES, DayFacts
from spark_reports.reports.days import DAY_MS, HOUR_MS, day_bounds
from spark_reports.snapshot import ClientFacts, GroupFacts, QueueEnds, Snapshot, TopicFacts

DAY = "2026-11-20"
GIB = 1 << 30
MINUTE = 60_000


def empty_facts(**tables) -> DayFacts:
    """Return every table: the named ones with these rows, the others empty."""
    assert set(tables) <= {table.name for table in TABLES}
    return {table.name: sorted(tables.get(table.name, [])) for table in TABLES}


def disk_at(day: str, zone: str = "UTC", total: int = 1000, used: int = 0, log: int = 0, late_ms: int = 2 * HOUR_MS):
    """Return the row of the table DISK, measured `late_ms` after the day's end."""
    return (total, total - used, log + 1, log, 3 * DAY_MS, day_bounds(day, zone)[1] + late_ms)


def snapshot_of(day: str = DAY, zone: str = "UTC", **values) -> Snapshot:
    begin, end = day_bounds(day, zone)
    known = {
        "t0_ms": end + 2 * HOUR_MS, "day": day, "zone": zone, "from_ms": begin, "to_ms": end, "store_dir": "/store",
        "deliveries_dir": "/deliveries", "log_min": 0, "log_end": 1 << 20, "retention_ms": 3 * DAY_MS,
        "disk_total": 100 * GIB, "disk_free": 60 * GIB, "store_bytes": 1 << 20,
    }  # fmt: skip
    return Snapshot(**{**known, **values})


def days_until(day: str, count: int) -> list[str]:
    last = date.fromisoformat(day)
    return [(last - timedelta(days=n)).isoformat() for n in range(count - 1, -1, -1)]


SHOP_TOPICS = ("orders", "payments", "parcels", "search-updates", "mails", "clicks", "prices", "audit", "invoices")
SHOP_GROUPS = (
    ("shipping", "orders"), ("billing", "orders"), ("search-index", "search-updates"), ("mailer", "mails"),
    ("fraud", "payments"), ("statistics", "clicks"), ("warehouse", "parcels"), ("price-feed", "prices"),
    ("archive", "audit"), ("accounts-receivable-of-the-northern-branch", "invoices"),
)  # fmt: skip


def shop_day(day: str, index: int, zone: str, seed: int = 7) -> DayFacts:
    chance = random.Random(f"{seed} {day}")
    begin, end = day_bounds(day, zone)
    hours = list(range(begin, end, HOUR_MS))
    traffic, retries, letters, latency, lag, queues, groups = [], [], [], [], [], [], []
    for number, topic in enumerate(SHOP_TOPICS):
        for queue in range(2):
            for at in hours:
                count = int(chance.uniform(0.5, 1.5) * 9000 / (number + 1))
                traffic.append((topic, queue, at, count, count * 1300, count * 1100))
            queues.append((topic, queue, 0, 1_000_000 + 100_000 * index))
    for number, (group, topic) in enumerate(SHOP_GROUPS):
        slow = number in (0, 2) and chance.random() < 0.9
        for hour, at in enumerate(hours):
            if number == 7 and 3 <= hour < 6:
                continue
            worst = chance.choice((0, 0, 0, 400, 2500, 50_000)) if number < 6 else 0
            if slow and 9 <= hour < 13:
                worst = int(chance.uniform(2, 41) * MINUTE)
            over = max(0, min(HOUR_MS, worst - 5 * MINUTE))
            lag.append((group, at, 120, worst * 9 // 10, worst, over, int(chance.random() < 0.1)))
        groups.append((group, number % 4, 0 if number else 1200, -1 if number else end - 3 * HOUR_MS, 5 * MINUTE))
        middle = 3 + number % 7
        for bucket in range(middle - 3, middle + 5):
            messages = int(10_000 * chance.uniform(0.8, 1.2) / (1 + (bucket - middle) ** 2))
            latency.append((group, topic, "first", bucket, messages))
            latency.append((group, topic, "last", min(22, bucket + (number % 2)), messages))
    contents = {"producers": [("", "", 7, 700, 0, 0, 0, 0)], "sizes": [], "largest": [], "repeats": [], "frequent": []}
    for number, topic in enumerate(SHOP_TOPICS):
        host, ahead = f"10.0.{number % 3}.{number}", -2500 if number == 4 else 1
        contents["producers"].append((topic, host, 9000 // (number + 1), 1 << 20, 9000, 9000 * 12, ahead, 900))
        contents["sizes"] += [(topic, bucket, 100 * bucket, 1000 * bucket) for bucket in range(20 + number, 60, 5)]
        contents["largest"].append((topic, 900 + 100_000 * number, 1200, 1, 77, begin + HOUR_MS, f"7F{number:030}"))
        contents["repeats"].append((topic, 4000 // (number + 1) ** 2, 40, 55, 8))
        contents["frequent"] += [
            ("key", topic, f"customer-{number}", 800 // (number + 1), 8),
            ("shard", topic, "x", 3, 8),
        ]
        contents["frequent"] += [("id", topic, f"7F{number:030}", 12 - number, 1)]
    for group, topic, base in (("shipping", "orders", 90), ("mailer", "mails", 30), ("fraud", "payments", 4)):
        dead = int(base * chance.uniform(0, 2))
        letters += [(group, topic, at, dead, dead * 1400) for at in hours[9:11] if dead]
        retries += [(group, topic, depth, hours[8], base * 16 // depth, depth % 3) for depth in range(1, 17)]
        expired = 20 * max(0, index - 4)
        queues.append((f"%DLQ%{group}", 0, expired, expired + 200))
    stored = min(30, index + 1) * 2 * GIB
    disk = [(100 * GIB, (70 - min(30, index)) * GIB - stored, stored + GIB, stored, 3 * DAY_MS, end + 2 * HOUR_MS)]
    return empty_facts(
        traffic=traffic, retries=retries, dead_letters=letters, latency=latency, lag=lag, queues=queues, groups=groups,
        disk=disk, **contents,
    )  # fmt: skip


def shop(day: str = DAY, zone: str = "Europe/Berlin", count: int = 15) -> tuple[Snapshot, dict[str, DayFacts]]:
    """Return `count` days of a shop; the last one has a gap."""
    days = days_until(day, count)
    facts = {one: shop_day(one, index, zone) for index, one in enumerate(days)}
    facts[day]["findings"] = [("gap", "00000000001073741824", 0, 4096)]
    end = day_bounds(day, zone)[1]
    clients = [ClientFacts(f"10.0.0.{n}@{n}", *kind) for n, kind in enumerate(_CLIENTS)]
    groups = tuple(
        GroupFacts(
            group, "clustering", tuple(clients[n : n + n % 4]), 1200 if n == 0 else 0, end - 50 * HOUR_MS if n == 0
            else None, 5 * MINUTE, ("orders",) if n == 1 else (),
        )
        for n, (group, _) in enumerate(SHOP_GROUPS)
    )  # fmt: skip
    topics = [TopicFacts(topic, "user", end - 1000) for topic in SHOP_TOPICS]
    topics += [TopicFacts("legacy-import", "user", end - 80 * DAY_MS), TopicFacts("TBW102", "system")]
    topics += [TopicFacts(f"%DLQ%{group}", "dead-letter", end) for group in ("shipping", "mailer", "fraud", "gone")]
    disk = facts[day]["disk"][0]
    snapshot = snapshot_of(
        day, zone, topics=tuple(topics), groups=groups, disk_total=disk[0], disk_free=disk[1], store_bytes=disk[2],
        queues=tuple(QueueEnds(*row) for row in facts[day]["queues"]),
    )  # fmt: skip
    return snapshot, facts


_CLIENTS = (
    ("JAVA", "5.3.3"), ("JAVA", "5.3.3"), ("JAVA", "4.9.8"), ("GO", "5.0.0"), ("PYTHON", "4.9.2"),
    ("CPP", "4.6.0"), ("JAVA", "5.3.3"), ("GO", "5.0.0"), ("DOTNET", "5.1.0"), ("JAVA", "5.1.0"),
    ("JAVA", "4.9.8"), ("JAVA", "4.3.0"), ("RUST", "5.0.0"),
)  # fmt: skip

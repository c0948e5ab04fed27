"""A queue's tail, read by one thread while another trims it."""

import sys
import threading

from appliance.engine.store.queues.consume_queue import ENTRY, ConsumeQueue


def test_another_thread_never_reads_the_entry_of_another_offset():
    queue = ConsumeQueue("T", 0)
    done = threading.Event()
    wrong = []

    def read():
        while not done.is_set():
            offset = queue.tail_base + 5
            found = queue.tail_entries_shared(offset, 1)
            if found and ENTRY.unpack(found)[0] != offset:
                wrong.append((offset, ENTRY.unpack(found)[0]))

    readers = [threading.Thread(target=read) for _ in range(2)]
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        for reader in readers:
            reader.start()
        for offset in range(30_000):
            queue.append(offset, 100, 0)
            queue.max_offset = queue.next_offset
            if offset % 20 == 19:
                queue.trim(offset - 9)
    finally:
        done.set()
        for reader in readers:
            reader.join()
        sys.setswitchinterval(interval)
    assert wrong == []


def test_what_was_trimmed_is_for_the_files():
    queue = ConsumeQueue("T", 0)
    for offset in range(4):
        queue.append(offset, 100, 0)
    queue.max_offset = 4
    assert queue.trim(2) == 40
    assert queue.trim(2) == 0
    assert queue.tail_entries_shared(1, 1) is None
    assert queue.tail_entries_shared(2, 9) == ENTRY.pack(2, 100, 0) + ENTRY.pack(3, 100, 0)

"""The client's logic without I/O: bytes, times and requests in; bytes, outcomes and deadlines out. PURE.

Procedures are generators (`steps`): they yield effects and are resumed with the outcomes. A shell performs the effects:
with threads today, with asyncio on the same objects later.
"""

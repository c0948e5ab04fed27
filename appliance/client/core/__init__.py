"""What the client knows, without I/O: bytes, times and wishes in; bytes, outcomes and deadlines out. PURE.

Procedures are generators (`steps`): they yield what is to be done and are resumed with what came of it. A shell does
it: with threads today, with asyncio on the same objects later.
"""

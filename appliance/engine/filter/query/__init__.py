"""What people look for among messages: SQL92 as consumers filter by, and what a console needs beside it. PURE.

`compile_query(text)` gives a `Query`, whose `matches(message)` judges a `Candidate`. Above SQL92 there are the
message's tag, key and body, values of a body that is JSON, LIKE and REGEXP; what consumers filter by stays what it is.
"""

from .judge import Candidate, Query, Undecided, compile_query

__all__ = ["Candidate", "Query", "Undecided", "compile_query"]

"""Queries of people for messages: the SQL92 that consumers filter by, with additions for a console. PURE.

`compile_query(text)` returns a `Query`, whose `matches(message)` judges a `Candidate`. Added to SQL92 are the message's
tag, key and body, values of a body that is JSON, LIKE and REGEXP; the filters of consumers do not have them.
"""

from .judge import Candidate, Query, Undecided, compile_query

__all__ = ["Candidate", "Query", "Undecided", "compile_query"]

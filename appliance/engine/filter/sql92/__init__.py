"""SQL92: the language in which consumers filter messages by their properties. PURE.

    compile_sql92("price > 5 AND region IN ('north', 'south')").matches({"price": "7", "region": "north"})

The language and every verdict are RocketMQ's, with all surprises: docs/sql92.md.
"""

from .errors import SqlError
from .expression import Sql92Expression, compile_sql92
from .parser import MAX_DEPTH, MAX_LENGTH

__all__ = ["MAX_DEPTH", "MAX_LENGTH", "Sql92Expression", "SqlError", "compile_sql92"]

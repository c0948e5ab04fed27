"""Differences of answers by the version and the language in a request's header. PURE.

    from  version           what                                                             source, RocketMQ 5.3.3
     28   V3_0_7_SNAPSHOT   supports the requests 220 and 221                                Broker2Client
     37   V3_0_11           wraps the table of its 103                                       DefaultRequestProcessor
     62   V3_1_8_SNAPSHOT   supports the requests 307 and 309                                AdminBrokerProcessor
    121   V3_4_9            sends its own limit of retries                                   SendMessageProcessor
    401   V4_9_4            broker ids of 105 are quoted; below for acceptStandardJsonOnly   ClientRequestProcessor
    413   V5_0_0            a compressed 103 ends with the mappings of static topics         RegisterBrokerBody

    language   what
    CPP        220 has its offsets as a list                                                 Broker2Client

Java and C++ read quoted ids whatever their version. Go clients up to 2.1.0, which call themselves 4.5.2, read each one
as 0, and so send to the broker of a set that comes last. Apache's 106 and 901 quote ids for no client; here they do as
105 does, so that present clients get standard JSON.
"""

from __future__ import annotations

from collections.abc import Mapping

KNOWS_RESETS = 28
WRAPS_TABLES = 37
KNOWS_MEMBER_QUESTIONS = 62
LIMITS_RETRIES = 121
READS_QUOTED_IDS = 401
MAPS_STATIC_TOPICS = 413

_ACCEPTS = "acceptStandardJsonOnly"


def reads_quoted_ids(version: int, fields: Mapping[str, str]) -> bool:
    """True if broker ids that are keys in the answer's JSON are quoted for this client."""
    return version >= READS_QUOTED_IDS or fields.get(_ACCEPTS, "").lower() == "true"


def wants_offsets_listed(language: str) -> bool:
    """True if 220 gives a member its offsets as a list, not as a table with objects as keys."""
    return language == "CPP"

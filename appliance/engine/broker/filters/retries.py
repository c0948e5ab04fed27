"""filterSupportRetry: messages that are consumed again, judged by what their group wants of the topic they came from.

Apache asks the subscription of the retry topic first, which official clients make of tags, so that its switch does
nothing for them. Here it counts whatever the retry topic is subscribed with.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from ...errors import RefusedRequest
from ...filter.expressions import make_filter
from ...filter.message_filter import MessageFilter
from ...protocol.properties import RETRY_TOPIC

if TYPE_CHECKING:
    from .consumer_filters import FilterData


class FilterOfRetries(MessageFilter):
    """Of one group's retry topic. Any thread; what does not compile lets everything through, as nothing would come
    again otherwise."""

    __slots__ = ("_data_of", "_wanted")

    def __init__(self, wanted: MessageFilter, data_of: Callable[[str], FilterData | None]) -> None:
        """data_of: what the group wants of a topic."""
        super().__init__(wanted.codes, reads_records=True, costly=True)
        self._wanted = wanted
        self._data_of = data_of

    def matches(self, properties: Mapping[str, str]) -> bool:
        if self._wanted.reads_records and not self._wanted.matches(properties):
            return False
        data = self._data_of(properties.get(RETRY_TOPIC, ""))
        if data is None:
            return True
        try:
            return make_filter(data.expression_type, data.expression).matches(properties)
        except RefusedRequest:
            return True

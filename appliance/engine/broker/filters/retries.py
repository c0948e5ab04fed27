"""filterSupportRetry: filters messages that are consumed again by their group's expression for their original topic.

Apache checks the subscription of the retry topic first. Official clients subscribe it by tags, so Apache's switch has
no effect for them. Here the switch works whatever the retry topic is subscribed with.
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
    """The filter of one group's retry topic. Any thread. An expression that does not compile lets everything through,
    because otherwise no message would come again."""

    __slots__ = ("_data_of", "_wanted")
    lasts = False

    def __init__(self, wanted: MessageFilter, data_of: Callable[[str], FilterData | None]) -> None:
        """data_of: returns the group's entry for a topic."""
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

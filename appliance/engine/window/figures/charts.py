"""Rates over the last seconds, for charts."""

from __future__ import annotations

from ...broker.sampler import Sampler
from ...broker.topics import TopicConfigManager
from ...errors import NotFound
from .. import snapshots as s
from ..refusals import require_one_of, require_within

_BROKER = ("in", "out", "in_bytes", "out_bytes")


class Charts:
    """Any thread."""

    def __init__(self, sampler: Sampler, topics: TopicConfigManager) -> None:
        # Constant after construction.
        self._sampler = sampler
        self._topics = topics

    def series(self, name: str, seconds: int = 600, topic: str | None = None, group: str | None = None) -> s.Series:
        """Return a rate over the last `seconds` (the last 598 at most), a point a second, for a chart.

        name: "in", "out" (messages/s), "in_bytes", "out_bytes" (bytes/s) of the broker; "in" or "out" of a topic; "out"
        of a group. NotFound for an unknown topic, InvalidInput for another name.
        """
        require_within("seconds", seconds, 1, 3600)
        if topic is not None:
            points = self._of_topic(topic, name, seconds)
        elif group is not None:
            require_one_of("name", name, ("out",))
            pairs = list(self._sampler.pairs.items())
            points = self._sampler.moves_history([moves for (_, own), moves in pairs if own == group], seconds)
        else:
            require_one_of("name", name, _BROKER)
            points = self._sampler.history(name, seconds)
        unit = "bytes/s" if name.endswith("bytes") else "messages/s"
        return s.Series(name, unit, tuple(at for at, _ in points), tuple(value for _, value in points))

    def _of_topic(self, topic: str, name: str, seconds: int) -> list[tuple[int, float]]:
        if self._topics.get(topic) is None:
            raise NotFound("topic", topic)
        require_one_of("name", name, ("in", "out"))
        if name == "in":
            came = self._sampler.topics.get(topic)
            return self._sampler.moves_history([] if came is None else [came], seconds)
        pairs = list(self._sampler.pairs.items())
        return self._sampler.moves_history([moves for (own, _), moves in pairs if own == topic], seconds)

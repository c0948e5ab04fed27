"""The history as alerts read it, to try rules."""

from __future__ import annotations

from ...engine.figures import KEPT
from .figures import Figures


class HistoryPast:
    """`Past` of the history that this process keeps."""

    def labels(self, metric: str, from_ms: int, to_ms: int) -> list[str]:
        from ..history import series

        if metric not in KEPT:  # the history does not record needs
            return []
        return series.labels(metric) if KEPT[metric].of != "broker" else [""]

    def figures(self, metric: str, label: str, from_ms: int, to_ms: int) -> Figures:
        from ..history import series

        found = series.series(metric, label, from_ms, to_ms, points=series.MOST_POINTS)
        return list(zip(found.times_at_ms, found.highs, strict=True))

"""Names of the alert channels that receive the reports' digest, as the settings of the reports store them."""

from __future__ import annotations

from ..models import Setting

KEY = "reports"


def follow(before: str, after: str | None) -> None:
    """Replace the name of a renamed channel in the list; after: None removes a deleted channel from it."""
    kept = Setting.objects.filter(key=KEY).first()
    names = kept.value.get("digest_channels") if kept is not None and isinstance(kept.value, dict) else None
    if kept is None or not isinstance(names, list) or before not in names:
        return
    named = [after if name == before else name for name in names]
    kept.value = kept.value | {"digest_channels": [name for name in named if name is not None]}
    kept.save()

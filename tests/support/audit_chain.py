"""The audit log's chain alone, without its head's count and end."""

from __future__ import annotations

from appliance.console.audit import log as audit
from appliance.console.audit import seal as audit_seal


def first_broken() -> int | None:
    """Return the id of the first entry whose digest does not follow from it and its predecessor; None if the chain is
    whole."""
    seal = audit._seal()
    key = audit._PASSING_KEY if seal is None else seal.key()
    head = None if seal is None or key is None else seal._read_head(key)
    base = head.base if isinstance(head, audit_seal.Head) else audit_seal.Base()
    return audit_seal.first_broken_of(audit.DatabaseTable(), base, key)

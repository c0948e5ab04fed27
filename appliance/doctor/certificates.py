"""Checks the certificates that TLS is served with."""

from __future__ import annotations

import time
from pathlib import Path

from ..engine.tls.certificate import read_pair
from ..engine.window.health import limits
from .diagnosis import Diagnosis


def look_at_certificate(found: Diagnosis, certificate: str, key: str) -> None:
    """Check a pair of files: that it loads, is valid, and that others cannot read the key."""
    try:
        pair = read_pair(certificate, key)
    except ValueError as error:
        found.fail("certificate", f"TLS cannot be served: {error}.", "a new pair is made by rocketbox certificate make")
        return
    now_s = time.time()
    left = pair.days_left_at(now_s)
    text = (
        f"{certificate} is valid for {left} more {'day' if left == 1 else 'days'}; its SHA-256 is {pair.fingerprint}."
    )
    if refusal := pair.refusal_at(now_s):
        text = f"Clients that check certificates refuse the one in {certificate}: {refusal}."
        found.warn("certificate", text, "replace both files; a running server takes them within 5 s")
    elif left is not None and left <= limits.CERTIFICATE_DAYS:
        found.warn("certificate", text, "replace both files; a running server takes them within 5 s")
    else:
        found.ok("certificate", text)
    if Path(key).stat().st_mode & 0o077:
        found.warn("certificate", f"Other users may read the key in {key}.", f"chmod 600 {key}")

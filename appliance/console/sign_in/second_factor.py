"""The second factor: codes of six digits that change every 30 s (TOTP, RFC 6238), required after the password.

A code can be used once, and so can each of ten recovery codes. Wrong codes are counted as wrong passwords are, with
lower limits. Users with a role for which a second factor is required see only their own page until they have one. Users
who sign in through a provider or a proxy need none here: that is up to the provider or proxy.
"""

from __future__ import annotations

import hashlib
import secrets
import time
from typing import Any

from ..models import RecoveryCode, Role, Setting, User
from .lockout import Lockout

ISSUER = "RocketBox"
STEP_S = 30
RECOVERY_CODES = 10
_ALPHABET = "abcdefghjkmnpqrstuvwxyz23456789"
_KEY = "second-factor-roles"

#: Counts wrong codes; a caller who is counted here knew the password.
lockout = Lockout(limits={"both": 5, "address": 20, "name": 10, "known": 5})


def new_secret() -> str:
    """Return 160 random bits in base32."""
    import pyotp

    return pyotp.random_base32()


def address_of(secret: str, user: User) -> str:
    """Return the otpauth:// address that an authenticator app reads from the QR code."""
    import pyotp

    return str(pyotp.TOTP(secret, name=user.username, issuer=ISSUER).provisioning_uri())


def picture_of(secret: str, user: User) -> str:
    """Return the QR code of that address, as an SVG for the page."""
    import segno

    code = segno.make(address_of(secret, user), error="m")
    return str(code.svg_inline(scale=4, border=4, dark="#000", light="#fff", svgclass="qr", lineclass=None))


def step_of(secret: str, code: str, now_s: float | None = None) -> int | None:
    """Return the step of 30 s to which the code belongs: the present one, or one before or after. None if the code is
    wrong."""
    import hmac

    import pyotp

    digits = "".join(code.split())
    if len(digits) != 6 or not (digits.isascii() and digits.isdigit()):
        return None
    totp = pyotp.TOTP(secret)
    present = int((time.time() if now_s is None else now_s) // STEP_S)
    found = None
    for step in (present - 1, present, present + 1):
        if hmac.compare_digest(totp.generate_otp(step), digits):
            found = step
    return found


def check(user: User, code: str) -> str | None:
    """Check a code and use it up. Return "code" or "recovery code" if it was right; None if it is wrong or was used
    before."""
    step = step_of(user.totp_secret, code) if user.totp_secret else None
    if step is not None:
        fresh = User.objects.filter(pk=user.pk, totp_secret=user.totp_secret, totp_last_step__lt=step)
        return "code" if fresh.update(totp_last_step=step) == 1 else None
    return "recovery code" if user.totp_secret and _use_recovery_code(user, code) else None


def turn_on(user: User, secret: str, code: str) -> list[str] | None:
    """Make the secret the user's second factor and return new recovery codes, which are shown once; None, and no
    change, if the code does not belong to the secret. Call in a transaction."""
    step = step_of(secret, code)
    if step is None:
        return None
    User.objects.filter(pk=user.pk).update(totp_secret=secret, totp_last_step=step)
    return new_recovery_codes(user)


def turn_off(user: User) -> None:
    """Remove the user's second factor: the password alone is enough. Call in a transaction."""
    User.objects.filter(pk=user.pk).update(totp_secret="", totp_last_step=0)
    RecoveryCode.objects.filter(user=user).delete()


def new_recovery_codes(user: User) -> list[str]:
    """Replace the user's recovery codes by ten new ones and return them. Each has three groups of five characters, 74
    bits."""
    codes = [
        "-".join("".join(secrets.choice(_ALPHABET) for _ in range(5)) for _ in range(3)) for _ in range(RECOVERY_CODES)
    ]
    RecoveryCode.objects.filter(user=user).delete()
    RecoveryCode.objects.bulk_create(RecoveryCode(user=user, digest=_digest(code)) for code in codes)
    return codes


def recovery_codes_left(user: User) -> int:
    return RecoveryCode.objects.filter(user=user).count()


def required_roles() -> list[str]:
    """Return the roles that need a second factor."""
    found = Setting.objects.filter(key=_KEY).first()
    kept = found.value if found is not None and isinstance(found.value, list) else []
    return [role for role in Role.values if role in kept]


def require_for(roles: list[str]) -> None:
    Setting.objects.update_or_create(key=_KEY, defaults={"value": [role for role in Role.values if role in roles]})


def is_missing(user: Any) -> bool:
    """True if a user who signs in with a password, or the owner of a token, needs a second factor and has none."""
    person = user.token.owner if user.kind == "token" else user
    return not person.totp_secret and not person.identity and person.role in required_roles()


def _use_recovery_code(user: User, code: str) -> bool:
    plain = "".join(code.split()).lower()
    return bool(plain) and RecoveryCode.objects.filter(user=user, digest=_digest(plain)).delete()[0] == 1


def _digest(code: str) -> str:
    return hashlib.sha256(code.encode("utf-8", "replace")).hexdigest()

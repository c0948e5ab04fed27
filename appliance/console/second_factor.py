"""The second factor: codes of six digits that change every 30 s (TOTP, RFC 6238), asked for after the password.

A code counts once, and so does each of ten recovery codes. Wrong ones are counted as wrong passwords are, with less
patience. Roles for which administrators require a second factor see nothing but their own page until they
have one. Users for whom a provider or a proxy vouches are not asked: that is for those to do.
"""

from __future__ import annotations

import hashlib
import secrets
import time
from typing import Any

from .lockout import Lockout
from .models import RecoveryCode, Role, Setting, User

ISSUER = "RocketBox"
STEP_S = 30
RECOVERY_CODES = 10
_ALPHABET = "abcdefghjkmnpqrstuvwxyz23456789"
_KEY = "second-factor-roles"

#: Wrong codes; whoever is counted here knew the password.
lockout = Lockout(limits={"both": 5, "address": 20, "name": 10, "known": 5})


def new_secret() -> str:
    """160 random bits in base32."""
    import pyotp

    return pyotp.random_base32()


def address_of(secret: str, user: User) -> str:
    """What an authenticator reads from the picture: otpauth://..."""
    import pyotp

    return str(pyotp.TOTP(secret, name=user.username, issuer=ISSUER).provisioning_uri())


def picture_of(secret: str, user: User) -> str:
    """The same as a QR code, an SVG that stands in the page."""
    import segno

    code = segno.make(address_of(secret, user), error="m")
    return str(code.svg_inline(scale=4, border=4, dark="#000", light="#fff", svgclass="qr", lineclass=None))


def step_of(secret: str, code: str, now_s: float | None = None) -> int | None:
    """The step of 30 s whose code it is, now or one to either side; None when it is wrong."""
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
    """ "code" or "recovery code" when it is good, and from now on it is not; None when it is wrong or was used."""
    step = step_of(user.totp_secret, code) if user.totp_secret else None
    if step is not None:
        fresh = User.objects.filter(pk=user.pk, totp_secret=user.totp_secret, totp_last_step__lt=step)
        return "code" if fresh.update(totp_last_step=step) == 1 else None
    return "recovery code" if user.totp_secret and _use_recovery_code(user, code) else None


def turn_on(user: User, secret: str, code: str) -> list[str] | None:
    """Make it the user's second factor, when the code is of it; the recovery codes, which are shown once. Call in a
    transaction."""
    step = step_of(secret, code)
    if step is None:
        return None
    User.objects.filter(pk=user.pk).update(totp_secret=secret, totp_last_step=step)
    return new_recovery_codes(user)


def turn_off(user: User) -> None:
    """The password alone lets the user in. Call in a transaction."""
    User.objects.filter(pk=user.pk).update(totp_secret="", totp_last_step=0)
    RecoveryCode.objects.filter(user=user).delete()


def new_recovery_codes(user: User) -> list[str]:
    """Ten new ones; those before are worth nothing from now on. Three groups of five: 74 bits."""
    codes = [
        "-".join("".join(secrets.choice(_ALPHABET) for _ in range(5)) for _ in range(3)) for _ in range(RECOVERY_CODES)
    ]
    RecoveryCode.objects.filter(user=user).delete()
    RecoveryCode.objects.bulk_create(RecoveryCode(user=user, digest=_digest(code)) for code in codes)
    return codes


def recovery_codes_left(user: User) -> int:
    return RecoveryCode.objects.filter(user=user).count()


def required_roles() -> list[str]:
    """The roles that need one."""
    found = Setting.objects.filter(key=_KEY).first()
    kept = found.value if found is not None and isinstance(found.value, list) else []
    return [role for role in Role.values if role in kept]


def require_for(roles: list[str]) -> None:
    Setting.objects.update_or_create(key=_KEY, defaults={"value": [role for role in Role.values if role in roles]})


def is_missing(user: Any) -> bool:
    """Whether a user who signs in with a password needs one and has none, or the owner of a token."""
    person = user.token.owner if user.kind == "token" else user
    return not person.totp_secret and not person.identity and person.role in required_roles()


def _use_recovery_code(user: User, code: str) -> bool:
    plain = "".join(code.split()).lower()
    return bool(plain) and RecoveryCode.objects.filter(user=user, digest=_digest(plain)).delete()[0] == 1


def _digest(code: str) -> str:
    return hashlib.sha256(code.encode("utf-8", "replace")).hexdigest()

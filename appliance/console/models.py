"""The console's own data: users, their tokens and sessions, and the audit log. Topics, groups and messages are not
models.

Times are milliseconds since 1970, as in the rest of RocketBox (`_at_ms`), unless Django requires its own type.
"""

from __future__ import annotations

import time
from typing import Any, ClassVar

from django.contrib.auth.base_user import AbstractBaseUser, BaseUserManager
from django.core.validators import RegexValidator
from django.db import models
from django.utils.translation import gettext_lazy as _


def now_ms() -> int:
    """Return the wall clock's time in milliseconds since 1970."""
    return time.time_ns() // 1_000_000


class Role(models.TextChoices):
    """From least to most; each role includes the ones before it."""

    VIEWER = "viewer", _("viewer")
    OPERATOR = "operator", _("operator")
    ADMIN = "admin", _("admin")


class Grants(models.Model):
    """The rights of a person or a token: a role, two rights that no role includes, and the names it may access.

    topic_pattern, group_pattern: shell patterns; "*" is every name. See `patterns`.
    """

    role = models.CharField(max_length=10, choices=Role.choices, default=Role.VIEWER)
    may_read_bodies = models.BooleanField(default=False)
    may_export = models.BooleanField(default=False)
    topic_pattern = models.CharField(max_length=255, default="*")
    group_pattern = models.CharField(max_length=255, default="*")

    class Meta:
        abstract = True


class UserManager(BaseUserManager["User"]):
    """Finds users by name; the case of letters does not matter."""

    def named(self, username: str) -> User | None:
        return self.filter(username__iexact=username).first()

    def active_admins(self) -> models.QuerySet[User]:
        return self.filter(role=Role.ADMIN, is_active=True)


class User(AbstractBaseUser, Grants):
    """A person who signs in to the console. Clients of the broker are not users."""

    username = models.CharField(
        max_length=64,
        unique=True,
        validators=[
            RegexValidator(r"^[\w.@+-]+\Z", _("Letters, digits and . @ + - _ only.")),
            # No address leads to a user "..", and "-" means no user in the audit log.
            RegexValidator(r"[^\W_]", _("At least one letter or digit.")),
        ],
    )
    language = models.CharField(max_length=10, blank=True, default="")
    # An IANA name ("Europe/Berlin"); "" is UTC.
    time_zone = models.CharField(max_length=64, blank=True, default="")
    is_active = models.BooleanField(default=True)
    must_change_password = models.BooleanField(default=False)
    # The sign-in that replaces the password: "proxy" or "oidc:<issuer> <subject>"; "" for a user with a password.
    identity = models.CharField(max_length=512, blank=True, default="", db_index=True)
    # The second factor: its secret in base32, "" for none, and the last step of 30 s whose code was taken.
    totp_secret = models.CharField(max_length=64, blank=True, default="")
    totp_last_step = models.BigIntegerField(default=0)
    created_at_ms = models.BigIntegerField(default=now_ms)

    objects = UserManager()

    USERNAME_FIELD = "username"
    REQUIRED_FIELDS: ClassVar[list[str]] = []

    class Meta:
        ordering = ("username",)

    kind = "user"

    def save(self, *arguments: Any, **named: Any) -> None:
        """Save the user. A new password, however it was set, and disabling the user end unused links to set one: the
        user's, and those that the user made for others, since an intruder may have made them. A user who is no longer
        an administrator loses the latter, also if promoted again later."""
        fields = named.get("update_fields")
        new_password = self._password is not None if fields is None else "password" in fields
        super().save(*arguments, **named)
        if new_password or not self.is_active:
            theirs = models.Q(user=self) | models.Q(made_by=self)
            SetPasswordLink.objects.filter(theirs, used_at_ms=None).delete()
        elif not self.is_admin and (fields is None or "role" in fields):
            SetPasswordLink.objects.filter(made_by=self, used_at_ms=None).delete()

    @property
    def label(self) -> str:
        """The user's name in the audit log."""
        return self.username

    @property
    def is_admin(self) -> bool:
        return bool(self.role == Role.ADMIN)

    @property
    def has_second_factor(self) -> bool:
        return bool(self.totp_secret)


class RecoveryCode(models.Model):
    """A code that replaces the second factor once. Only its SHA-256 is stored. See `second_factor`."""

    user = models.ForeignKey(User, on_delete=models.CASCADE, related_name="recovery_codes")
    digest = models.CharField(max_length=64)


class SetPasswordLink(models.Model):
    """A link with which a user sets a password, once. Only the secret's SHA-256 is stored. See `password_links`."""

    user = models.ForeignKey(User, on_delete=models.CASCADE, related_name="password_links")
    digest = models.CharField(max_length=64, unique=True)
    # Its maker, and the token it was made with: it ends when they cease to be administrators, or the token is revoked.
    made_by = models.ForeignKey(User, on_delete=models.CASCADE, null=True, related_name="+")
    made_with = models.ForeignKey("ApiToken", on_delete=models.SET_NULL, null=True, related_name="+")
    expires_at_ms = models.BigIntegerField()
    used_at_ms = models.BigIntegerField(null=True, blank=True)


class SignIn(models.Model):
    """A session: its address and browser, when it began and when it was last seen. Without its row a session ends. See
    `sessions`."""

    user = models.ForeignKey(User, on_delete=models.CASCADE, related_name="sign_ins")
    address = models.CharField(max_length=64, blank=True, default="")
    agent = models.CharField(max_length=200, blank=True, default="")
    # "password", "oidc", "proxy" or "set-up"
    way = models.CharField(max_length=12)
    since_ms = models.BigIntegerField(default=now_ms)
    seen_ms = models.BigIntegerField(default=now_ms, db_index=True)

    class Meta:
        ordering = ("-seen_ms",)


class ApiToken(Grants):
    """A key for programs. The secret is shown once; only its SHA-256 is stored. See `tokens`."""

    name = models.CharField(max_length=64)
    owner = models.ForeignKey(User, on_delete=models.CASCADE, related_name="tokens")
    # The token by which it was made: it never has more rights than that one, and ends with it.
    made_by = models.ForeignKey("self", on_delete=models.CASCADE, null=True, blank=True, related_name="made")
    # The first characters of the secret, to recognise it by.
    prefix = models.CharField(max_length=12)
    digest = models.CharField(max_length=64, unique=True)
    created_at_ms = models.BigIntegerField(default=now_ms)
    expires_at_ms = models.BigIntegerField(null=True, blank=True)
    last_used_at_ms = models.BigIntegerField(null=True, blank=True)
    revoked_at_ms = models.BigIntegerField(null=True, blank=True)

    class Meta:
        ordering = ("-created_at_ms",)


class AuditEntry(models.Model):
    """One act. Entries are only added, by `audit.append`; each one's digest covers the digest before it."""

    at_ms = models.BigIntegerField(db_index=True)
    actor = models.CharField(max_length=80)
    # "user", "token", "command line", "set-up", "wire" (a tool over the ports of broker or name server)
    actor_kind = models.CharField(max_length=12)
    address = models.CharField(max_length=64, blank=True, default="")
    action = models.CharField(max_length=64, db_index=True)
    target = models.CharField(max_length=512, blank=True, default="")
    before = models.JSONField(null=True)
    after = models.JSONField(null=True)
    # "done", "refused", "failed"
    result = models.CharField(max_length=10, default="done")
    request_id = models.CharField(max_length=32, blank=True, default="")
    digest = models.CharField(max_length=64)

    class Meta:
        ordering = ("-id",)


class IdempotentAnswer(models.Model):
    """The answer once given to a request that carried an Idempotency-Key; kept for 24 hours."""

    key = models.CharField(max_length=200)
    # The caller that sent it: two callers may use the same key.
    caller = models.CharField(max_length=80)
    request_digest = models.CharField(max_length=64)
    # 0 while the first request is still being worked on.
    status = models.IntegerField(default=0)
    headers = models.JSONField(default=dict)
    body = models.BinaryField(default=b"")
    created_at_ms = models.BigIntegerField(default=now_ms, db_index=True)

    class Meta:
        constraints: ClassVar[list[models.BaseConstraint]] = [
            models.UniqueConstraint(fields=["caller", "key"], name="one_answer_a_key")
        ]


class Setting(models.Model):
    """A value of this installation that the console changes, as JSON under a key. For example, "set-up" has the next
    step or "done"."""

    key = models.CharField(max_length=64, primary_key=True)
    value = models.JSONField()


# Django looks for models only in this module.
from .alerts.models import Alert, AlertChannel, AlertDelivery, AlertRule, AlertSilence  # noqa: E402, F401

"""Forms for users, passwords and the address given to clients."""

from __future__ import annotations

from typing import Any

from django import forms
from django.core.exceptions import ValidationError
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from ..models import Role, User
from ..pages.time_zones import is_zone
from .password_rules import password_problem


def _password(label: Any, *, new: bool, help_text: Any = "") -> forms.CharField:
    """Return a field for a password, which is taken as typed: spaces at its ends are part of it."""
    autocomplete = "new-password" if new else "current-password"
    widget = forms.PasswordInput(attrs={"autocomplete": autocomplete})
    return forms.CharField(label=label, strip=False, max_length=1024, widget=widget, help_text=help_text)


_LENGTH = gettext_lazy("At least ten characters, and nothing that is easy to guess.")


class WithoutCycles(forms.BaseForm):
    """A form without reference cycles, so that it is freed with its request, and its data too.

    Django's form keeps its bound fields, which refer to the form; and its errors have tracebacks, which refer to it as
    well. Old objects are never collected here (decision D10), so each form that is sent would stay for ever.
    """

    def __getitem__(self, name: str) -> forms.BoundField:
        return self.fields[name].get_bound_field(self, name)

    def add_error(self, field: str | None, error: Any) -> None:
        super().add_error(field, error)
        for kept in self.errors.values():
            for one in kept.as_data():
                one.__traceback__ = one.__context__ = one.__cause__ = None
        if isinstance(error, ValidationError):
            error.__traceback__ = error.__context__ = error.__cause__ = None


class Form(WithoutCycles, forms.Form):
    """A form whose labels have no colon, since they are above their fields."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, label_suffix="", **kwargs)


class SignInForm(Form):
    """Name and password; the view checks them."""

    username = forms.CharField(
        label=gettext_lazy("Name"),
        max_length=64,
        widget=forms.TextInput(attrs={"autocomplete": "username", "autofocus": True, "autocapitalize": "none"}),
    )
    password = _password(gettext_lazy("Password"), new=False)


class CodeForm(Form):
    """A code of the second factor."""

    code = forms.CharField(
        label=gettext_lazy("Code"),
        max_length=40,
        widget=forms.TextInput(
            attrs={"autocomplete": "one-time-code", "autofocus": True, "autocapitalize": "none", "spellcheck": "false"}
        ),
    )


class ConfirmForm(Form):
    """The password again."""

    password = _password(gettext_lazy("Password"), new=False)


class NewPasswordForm(Form):
    """A new password, typed twice, which the rules must accept. user: the one who will have it."""

    user: User

    def clean(self) -> dict[str, Any]:
        cleaned = super().clean() or {}
        password, again = cleaned.get("password"), cleaned.get("again")
        if password is not None:
            problem = password_problem(password, self.user)
            if problem:
                self.add_error("password", problem)
            elif again is not None and again != password:
                self.add_error("again", _("The two passwords differ."))
        return cleaned


class AdministratorForm(NewPasswordForm):
    """The first administrator."""

    username = forms.CharField(
        label=gettext_lazy("Name"),
        max_length=64,
        widget=forms.TextInput(attrs={"autocomplete": "username", "autofocus": True, "autocapitalize": "none"}),
        validators=User._meta.get_field("username").validators,
    )
    password = _password(gettext_lazy("Password"), new=True, help_text=_LENGTH)
    again = _password(gettext_lazy("The same password again"), new=True)
    time_zone = forms.CharField(
        label=gettext_lazy("Time zone"),
        required=False,
        max_length=64,
        widget=forms.TextInput(attrs={"autocomplete": "off", "spellcheck": "false", "data-offer-zone": True}),
        help_text=gettext_lazy("Times are shown and typed in it; UTC if it is empty. Your account changes it."),
    )

    def clean_time_zone(self) -> str:
        zone = str(self.cleaned_data["time_zone"])
        if zone in ("", "UTC"):
            return ""
        if not is_zone(zone):
            raise ValidationError(_("There is no time zone %(name)s.") % {"name": zone})
        return zone

    def clean(self) -> dict[str, Any]:
        self.user = User(username=self.cleaned_data.get("username", ""))
        return super().clean()

    def clean_username(self) -> str:
        username = str(self.cleaned_data["username"])
        if User.objects.named(username) is not None:
            raise ValidationError(_("There is already a user with this name."))
        return username


class ChangePasswordForm(NewPasswordForm):
    """A user's own new password, for the old one."""

    current = _password(gettext_lazy("Current password"), new=False)
    password = _password(gettext_lazy("New password"), new=True, help_text=_LENGTH)
    again = _password(gettext_lazy("The same password again"), new=True)

    def __init__(self, user: User, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.user = user


class SetPasswordForm(NewPasswordForm):
    """A user's own first password, by a link."""

    password = _password(gettext_lazy("New password"), new=True, help_text=_LENGTH)
    again = _password(gettext_lazy("The same password again"), new=True)

    def __init__(self, user: User, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.user = user


class SecondFactorRuleForm(Form):
    """The roles that need a second factor."""

    roles = forms.MultipleChoiceField(
        label=gettext_lazy("Roles that need a second factor"),
        choices=Role.choices,
        required=False,
        widget=forms.CheckboxSelectMultiple,
    )


PATTERNS = ("topic_pattern", "group_pattern")


class UserForm(WithoutCycles, forms.ModelForm):
    """A user's role, rights and patterns; for a new user also the name, and the way to the first password."""

    first = forms.ChoiceField(
        label=gettext_lazy("They get"),
        choices=(
            ("link", gettext_lazy("a link to set their password, good once and for 48 hours")),
            ("password", gettext_lazy("a first password, which they have to change")),
        ),
        initial="link",
        required=False,
        widget=forms.RadioSelect,
    )

    class Meta:
        model = User
        fields = ("username", "role", "may_read_bodies", "may_export", "topic_pattern", "group_pattern")
        labels = {  # noqa: RUF012
            "username": gettext_lazy("Name"),
            "role": gettext_lazy("Role"),
            "may_read_bodies": gettext_lazy("May read message bodies"),
            "may_export": gettext_lazy("May export messages"),
            "topic_pattern": gettext_lazy("Topics"),
            "group_pattern": gettext_lazy("Consumer groups"),
        }
        help_texts = {  # noqa: RUF012
            "topic_pattern": gettext_lazy("A pattern for names they may access: orders-* for example, or * for all."),
            "group_pattern": gettext_lazy("With another pattern than * they see no page about the whole broker."),
        }
        widgets = {"username": forms.TextInput(attrs={"autocomplete": "off", "autocapitalize": "none"})}  # noqa: RUF012

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, label_suffix="", **kwargs)
        for name in PATTERNS:
            self.fields[name].required = False
        if self.instance.pk:
            del self.fields["username"]
            del self.fields["first"]
        else:
            self.order_fields(["username", "role"])

    def clean_username(self) -> str:
        username = str(self.cleaned_data["username"])
        if User.objects.named(username) is not None:
            raise ValidationError(_("There is already a user with this name."))
        return username

    def clean(self) -> dict[str, Any]:
        """Complete the patterns: an empty one becomes "*", every name; one that was not sent stays as it is."""
        cleaned = super().clean() or {}
        for name in PATTERNS:
            cleaned[name] = (cleaned.get(name) or "*") if name in self.data else getattr(self.instance, name)
        return cleaned


class AddressForm(Form):
    """The host that clients get as the broker's address."""

    host = forms.CharField(
        label=gettext_lazy("Address given to clients"),
        max_length=253,
        widget=forms.TextInput(attrs={"autocomplete": "off", "autocapitalize": "none", "spellcheck": "false"}),
    )

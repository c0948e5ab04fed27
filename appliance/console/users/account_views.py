"""A user's own page: password, rights and sessions."""

from __future__ import annotations

from functools import partial

from django.contrib import messages
from django.contrib.auth.hashers import check_password
from django.db import transaction
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.shortcuts import render
from django.urls import reverse
from django.utils.translation import gettext as _

from ..audit.log import audit
from ..models import User
from ..pages import errors, time_zones
from ..pages.changes import form_status
from ..sign_in import second_factor, sessions
from ..sign_in.forms import ChangePasswordForm
from ..sign_in.identity import confirm, keep_signed_in, present
from ..sign_in.lockout import lockout
from . import tokens


def account(request: HttpRequest) -> HttpResponse:
    """Show the user's rights; change the password, which ends all their other sessions and tokens."""
    user: User = request.user
    if request.method == "POST" and user.identity:
        return errors.forbidden(request)
    form = ChangePasswordForm(user, request.POST or None)
    if request.method == "POST" and form.is_valid():
        one = lockout.begin(user.username, request.client_address, f"session {present(request)}")
        if one.wait_s > 0:
            form.add_error("current", _("Too many wrong passwords. Try again later."))
        elif not check_password(form.cleaned_data["current"], user.password):
            form.add_error("current", _("This is not your current password."))
        else:
            lockout.was_right(one)
            checked = user.password
            user.set_password(form.cleaned_data["password"])
            user.must_change_password = False
            with transaction.atomic():
                # If an administrator has reset the password or disabled the user since this request began, that stays.
                if not User.objects.filter(pk=user.pk, password=checked, is_active=True).exists():
                    return errors.forbidden(request)
                user.save(update_fields=["password", "must_change_password"])
                audit(request, "user.change_password", user.username)
                ended = tokens.revoke_all(user, partial(audit, request))
            keep_signed_in(request, user)
            confirm(request)
            messages.success(request, _("Password changed."))
            if ended:
                messages.warning(request, _("API tokens revoked: %(names)s") % {"names": ", ".join(ended)})
            return HttpResponseRedirect(reverse("account"))
    status = form_status(form)
    context = {"form": form, "yes_no": _("yes,no"), "zones": time_zones.names(), "present": present(request)}
    context |= {"sessions": sessions.of(user), "codes_left": second_factor.recovery_codes_left(user)}
    return render(request, "account/account.html", context, status=status)

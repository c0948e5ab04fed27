"""Users: who may sign in, as what. Each act is audited and asks for the password again."""

from __future__ import annotations

from functools import partial

from django.contrib import messages
from django.db import transaction
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.shortcuts import get_object_or_404, render
from django.urls import reverse
from django.utils.translation import gettext as _
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from .. import tokens
from ..audit import audit
from ..forms import UserForm, is_last_admin
from ..models import User
from ..password_rules import generate_password
from ..recent_login import recent_login_required


@require_safe
def users(request: HttpRequest) -> HttpResponse:
    """Everybody."""
    return render(request, "users/list.html", {"people": User.objects.all(), "yes_no": _("yes,no")})


@require_http_methods(["GET", "HEAD", "POST"])
@recent_login_required
def user_create(request: HttpRequest) -> HttpResponse:
    """Add a user with a first password that is shown once."""
    form = UserForm(request.POST or None)
    if request.method == "POST" and form.is_valid():
        person = form.save(commit=False)
        password = _give_first_password(person)
        person.save()
        audit(request, "user.create", person.username, None, rights_of(person))
        return render(request, "users/password.html", {"person": person, "password": password})
    return render(request, "users/create.html", {"form": form}, status=_status(form))


@require_http_methods(["GET", "HEAD", "POST"])
@recent_login_required
def user(request: HttpRequest, pk: int) -> HttpResponse:
    """Change role and rights."""
    person = get_object_or_404(User, pk=pk)
    if request.method != "POST":
        return render(request, "users/user.html", {"person": person, "form": UserForm(instance=person)})
    # One transaction (IMMEDIATE): two requests cannot both take the last but one administrator away.
    with transaction.atomic():
        before = rights_of(get_object_or_404(User, pk=pk))
        form = UserForm(request.POST, instance=person)
        saved = form.is_valid()
        if saved:
            form.save()
            audit(request, "user.change", person.username, before, rights_of(person))
            tokens.limit_to_owner(person, partial(audit, request))
    if not saved:
        person = get_object_or_404(User, pk=pk)
        return render(request, "users/user.html", {"person": person, "form": form}, status=422)
    messages.success(request, _("Saved."))
    return HttpResponseRedirect(reverse("user", args=[pk]))


@require_POST
@recent_login_required
def user_reset_password(request: HttpRequest, pk: int) -> HttpResponse:
    """Make a new first password, shown once; the user's sessions and tokens end."""
    person = get_object_or_404(User, pk=pk)
    if person.pk == request.user.pk:
        messages.error(request, _("Change your own password on the page of your account."))
        return HttpResponseRedirect(reverse("user", args=[pk]))
    with transaction.atomic():
        password = _give_first_password(person)
        person.save(update_fields=["password", "must_change_password"])
        audit(request, "user.reset_password", person.username)
        ended = tokens.revoke_all(person, partial(audit, request))
    context = {"person": person, "password": password, "ended": ", ".join(ended)}
    return render(request, "users/password.html", context)


@require_POST
@recent_login_required
def user_set_active(request: HttpRequest, pk: int) -> HttpResponse:
    """Disable a user, whose sessions and tokens end at once, or enable them again; tokens do not come back."""
    active = request.POST.get("active") == "yes"
    back = HttpResponseRedirect(reverse("user", args=[pk]))
    with transaction.atomic():
        person = get_object_or_404(User, pk=pk)
        if not active and is_last_admin(person):
            messages.error(request, _("This is the last administrator. Make another user an administrator first."))
            return back
        before = {"active": person.is_active}
        person.is_active = active
        person.save(update_fields=["is_active"])
        audit(request, "user.enable" if active else "user.disable", person.username, before, {"active": active})
        if not active:
            tokens.revoke_all(person, partial(audit, request))
    messages.success(request, _("Saved."))
    return back


def rights_of(person: User) -> dict[str, object]:
    """What the audit log keeps of a user."""
    return {"role": person.role, "may_read_bodies": person.may_read_bodies, "may_export": person.may_export}


def _give_first_password(person: User) -> str:
    password = generate_password()
    person.set_password(password)
    person.must_change_password = True
    return password


def _status(form: UserForm) -> int:
    return 422 if form.is_bound and form.errors else 200

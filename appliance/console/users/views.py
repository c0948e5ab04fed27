"""Users: the list, and acts on them. Each act is audited and requires the password again; looking does not."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

from django.contrib import messages
from django.core.exceptions import ValidationError
from django.db.models import Q, QuerySet
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.shortcuts import get_object_or_404, render
from django.urls import reverse
from django.utils.translation import gettext as _

from ..audit.log import audit
from ..models import Role, User
from ..pages.changes import form_status
from ..pages.curl import command_of
from ..pages.engine_pages import csv_of, page_number, wants_csv
from ..pages.rows import RowPage, page_of
from ..sign_in import second_factor, sessions
from ..sign_in.forms import SecondFactorRuleForm, UserForm
from ..sign_in.recent_login import recent_login_required
from . import once, user_acts

SORTS = {
    "name": "username",
    "role": "role",
    "last_sign_in": "last_login",
    "state": "is_active",
}


def users(request: HttpRequest) -> HttpResponse:
    """Show all users, filtered, sorted and in pages; `format=csv` for all of the filter's rows."""
    q, role, state = (request.GET.get(name, "") for name in ("q", "role", "state"))
    sort = request.GET.get("sort", "name")
    rows = sorted_rows(filtered(q, role, state), sort)
    if wants_csv(request):
        return csv_of(
            "users",
            "name=username role may_read_bodies may_export topics=topic_pattern groups=group_pattern "
            "second_factor=has_second_factor last_sign_in=last_login active=is_active",
            rows,
        )
    page: RowPage = page_of(rows, page_number(request))
    context = {"page": page, "q": q, "role": role, "state": state, "sort": sort, "roles": Role.choices}
    context |= {"yes_no": _("yes,no"), "required": second_factor.required_roles()}
    context |= {"rule": SecondFactorRuleForm(initial={"roles": second_factor.required_roles()})}
    return render(request, "users/list.html", context)


def filtered(q: str, role: str, state: str) -> QuerySet[User]:
    """Return the users whose name contains q, with this role, and "active" or "disabled"; "" for any."""
    rows = User.objects.all()
    if q:
        rows = rows.filter(Q(username__icontains=q))
    if role in Role.values:
        rows = rows.filter(role=role)
    return rows.filter(is_active=state == "active") if state in ("active", "disabled") else rows


def sorted_rows(rows: QuerySet[User], sort: str) -> QuerySet[User]:
    field = SORTS.get(sort.removeprefix("-"), "username")
    return rows.order_by("-" + field if sort.startswith("-") else field, "username")


def second_factor_rule(request: HttpRequest) -> HttpResponse:
    """Set the roles that need a second factor."""
    form = SecondFactorRuleForm(request.POST)
    if form.is_valid():
        before = second_factor.required_roles()
        second_factor.require_for(form.cleaned_data["roles"])
        after = second_factor.required_roles()
        audit(request, "second_factor.require", "", {"roles": before}, {"roles": after})
        messages.success(request, _("Saved."))
    return HttpResponseRedirect(reverse("users"))


def user_create(request: HttpRequest) -> HttpResponse:
    """Create a user with a link to set a password, or with a first password; either is shown once."""
    form = UserForm(request.POST or None)
    if request.method == "POST" and form.is_valid():
        person = form.save(commit=False)
        try:
            made = user_acts.create(request, person, generate=form.cleaned_data["first"] == "password")
        except (user_acts.Refused, ValidationError) as error:
            form.add_error(None, str(error) if isinstance(error, user_acts.Refused) else user_acts.message_of(error))
        else:
            return _show_once(request, person, made, [])
    return render(request, "users/create.html", {"form": form}, status=form_status(form))


def user_secret(request: HttpRequest, pk: int, ticket: str) -> HttpResponse:
    """Show the link or password that was made for a user, once: after reloading, the page says that it was shown."""
    person = get_object_or_404(User, pk=pk)
    return render(request, "users/password.html", {"person": person, "box": once.take(request, ticket)})


def user(request: HttpRequest, pk: int) -> HttpResponse:
    """Show one user; a POST changes the user and requires the password again."""
    return user_change(request, pk) if request.method == "POST" else _user_page(request, get_object_or_404(User, pk=pk))


@recent_login_required
def user_change(request: HttpRequest, pk: int) -> HttpResponse:
    """Change role, rights and patterns."""
    form = UserForm(request.POST, instance=get_object_or_404(User, pk=pk))
    if form.is_valid():
        try:
            user_acts.change(request, pk, form.cleaned_data)
        except (user_acts.Refused, ValidationError) as error:
            form.add_error(None, str(error) if isinstance(error, user_acts.Refused) else user_acts.message_of(error))
        else:
            messages.success(request, _("Saved."))
            return HttpResponseRedirect(reverse("user", args=[pk]))
    return _user_page(request, get_object_or_404(User, pk=pk), form)


def user_reset_password(request: HttpRequest, pk: int) -> HttpResponse:
    """Make a new link to set a password, or a new first password, shown once; the user's sessions and tokens end."""
    get_object_or_404(User, pk=pk)
    try:
        person, made, ended = user_acts.reset_password(request, pk, generate=request.POST.get("first") == "password")
    except user_acts.Refused as error:
        messages.error(request, str(error))
        return HttpResponseRedirect(reverse("user", args=[pk]))
    return _show_once(request, person, made, ended)


def user_set_active(request: HttpRequest, pk: int) -> HttpResponse:
    """Disable a user, whose sessions and tokens end at once; or enable the user again, without the old tokens."""
    get_object_or_404(User, pk=pk)
    try:
        user_acts.set_active(request, pk, request.POST.get("active") == "yes")
        messages.success(request, _("Saved."))
    except user_acts.Refused as error:
        messages.error(request, str(error))
    return HttpResponseRedirect(reverse("user", args=[pk]))


def user_second_factor_off(request: HttpRequest, pk: int) -> HttpResponse:
    """Remove a user's second factor, for example a lost one."""
    get_object_or_404(User, pk=pk)
    user_acts.remove_second_factor(request, pk)
    messages.success(request, _("The second factor is removed: the password alone lets this user in."))
    return HttpResponseRedirect(reverse("user", args=[pk]))


def user_end_sessions(request: HttpRequest, pk: int) -> HttpResponse:
    """End one of a user's sessions (`session=`), or all of them."""
    person = get_object_or_404(User, pk=pk)
    text = request.POST.get("session", "")
    number = int(text) if text.isascii() and text.isdigit() and len(text) < 19 else None
    if text and number is None:
        return HttpResponseRedirect(reverse("user", args=[pk]))
    count = user_acts.end_sessions(request, person, number)
    messages.success(request, _("Sessions ended: %(count)d.") % {"count": count})
    return HttpResponseRedirect(reverse("user", args=[pk]))


def _user_page(request: HttpRequest, person: User, form: Any = None) -> HttpResponse:
    context = {"person": person, "form": form or UserForm(instance=person), "sessions": sessions.of(person)}
    context |= {"codes_left": second_factor.recovery_codes_left(person)}
    context["as_curl"] = command_of(request, f"users/{quote(person.username, safe='')}", {})
    return render(request, "users/user.html", context, status=422 if form is not None else 200)


def _show_once(request: HttpRequest, person: User, made: Any, ended: list[str]) -> HttpResponse:
    box: dict[str, Any] = {"ended": ", ".join(ended)}
    if isinstance(made, tuple):
        box |= {"link": request.build_absolute_uri(reverse("set_password", args=[made[0]])), "until_ms": made[1]}
    else:
        box |= {"password": made}
    ticket = once.keep(request.user.pk, box)
    return HttpResponseRedirect(reverse("user_secret", args=[person.pk, ticket]))

"""Addresses of the console. Every name needs a line in `access.ACCESS`."""

from django.urls import path

from .views import account, first_run, health, metrics, sign_in, start, static_file, users

urlpatterns = [
    # For machines.
    path("healthz", health.healthz, name="healthz"),
    path("readyz", health.readyz, name="readyz"),
    path("metrics", metrics.metrics, name="metrics"),
    path("static/<path:name>", static_file.static_file, name="static_file"),
    # Coming and going.
    path("login/", sign_in.login, name="login"),
    path("logout/", sign_in.logout, name="logout"),
    path("language/", sign_in.set_language, name="set_language"),
    path("confirm/", sign_in.confirm_password, name="confirm_password"),
    path("account/", account.account, name="account"),
    path("setup/address/", first_run.address, name="setup_address"),
    path("setup/message/", first_run.message, name="setup_message"),
    path("setup/message/count/", first_run.message_count, name="setup_message_count"),
    path("setup/<str:secret>/", first_run.language, name="setup"),
    path("setup/<str:secret>/administrator/", first_run.administrator, name="setup_administrator"),
    # Users.
    path("system/users/", users.users, name="users"),
    path("system/users/new/", users.user_create, name="user_create"),
    path("system/users/<int:pk>/", users.user, name="user"),
    path("system/users/<int:pk>/reset-password/", users.user_reset_password, name="user_reset_password"),
    path("system/users/<int:pk>/active/", users.user_set_active, name="user_set_active"),
    # Pages.
    path("", start.start_page, name="overview"),
]

"""Who may sign in and what they did: accounts, set-up, users, users of the wire, tokens, the audit log."""

from __future__ import annotations

from ..users.roles import ADMIN, EVERYONE, SETUP, SETUP_ADMIN, VIEWER
from .row import DEFINITIONS, FORM, OWN, PAGE, SETTINGS, TIMES, WORD, Act, Also, Call

_RIGHTS = "role may_read_bodies:bool may_export:bool topic_pattern group_pattern"

ROWS: tuple[Act | Also, ...] = (
    # --- sign-in
    Act("sign_in.views.login", "login/", EVERYONE, takes=FORM, names=OWN),
    Act("sign_in.views.login_code", "login/code/", EVERYONE, takes=FORM, names=OWN),
    Act("sign_in.views.set_password", "password/<str:secret>/", EVERYONE, takes=FORM, names=OWN),
    Act("sign_in.views.logout", "logout/", EVERYONE, takes=FORM, posts=True, names=OWN),
    Act("sign_in.views.set_language", "language/", EVERYONE, takes=FORM, posts=True, names=OWN),
    Act("sign_in.views.confirm_password", "confirm/", VIEWER, takes=FORM, names=OWN),
    Act("sign_in.views.set_time_zone", "account/time-zone/", VIEWER, takes=FORM, posts=True, names=OWN),
    Act("sign_in.oidc_views.login_oidc", "login/oidc/", EVERYONE, names=OWN),
    Act("sign_in.oidc_views.login_oidc_back", "login/oidc/back/", EVERYONE, names=OWN),
    # --- one's own account
    Act("users.account_views.account", "account/", VIEWER, takes=FORM, names=OWN, calls=[
        Call("GET me"),
        Call("GET me/sessions")]),
    Act("sign_in.second_factor_views.second_factor", "account/second-factor/",
        VIEWER, takes=FORM, confirms=True, names=OWN),
    Act("sign_in.second_factor_views.second_factor_off", "account/second-factor/off/",
        VIEWER, takes=FORM, posts=True, confirms=True, names=OWN),
    Act("sign_in.second_factor_views.second_factor_codes", "account/codes/<str:ticket>/", VIEWER, names=OWN),
    Act("sign_in.second_factor_views.session_end", "account/sessions/end/",
        VIEWER, takes=FORM, posts=True, names=OWN, calls=[
        Call("DELETE me/sessions/<int:number>", takes=WORD)]),
    # --- set-up, only with its link
    Act("sign_in.set_up_views.setup_address", "setup/address/", SETUP_ADMIN, takes=FORM),
    Act("sign_in.set_up_views.setup_message", "setup/message/", SETUP_ADMIN, takes=FORM),
    Act("sign_in.set_up_views.setup_message_count", "setup/message/count/", SETUP_ADMIN),
    Act("sign_in.set_up_views.setup", "setup/<str:secret>/", SETUP, takes=FORM),
    Act("sign_in.set_up_views.setup_administrator", "setup/<str:secret>/administrator/", SETUP, takes=FORM),
    # --- users
    Act("users.views.users", "system/users/", ADMIN, curl="q role state sort", calls=[
        Call("GET users", "user list", "Who may sign in.", query=f"q role state sort {PAGE}",
             columns="username role active topic_pattern group_pattern last_sign_in_at_ms", lists=True)]),
    Act("users.views.user", "system/users/<int:pk>/", ADMIN, takes=FORM, curl=None, calls=[
        Call("GET users/<username>", "user show NAME", "One user.")]),
    Act("users.views.user_create", "system/users/new/", ADMIN, takes=FORM, confirms=True, calls=[
        Call("POST users", "user create NAME", "Create a user; the answer has a link to set a password.",
             takes=SETTINGS, body=_RIGHTS, fixed="username={name}")]),
    Also("user", [
        Call("PATCH users/<username>", "user edit NAME", "Change role, rights and patterns.", takes=SETTINGS,
             body=_RIGHTS),
        Call("PATCH users/<username>", "user disable NAME", "End all sessions and tokens of a user.", takes=SETTINGS,
             fixed="active=false"),
        Call("PATCH users/<username>", "user enable NAME", "Let a user sign in again.", takes=SETTINGS,
             fixed="active=true"),
        Call("GET users/<username>/sessions", "user sessions NAME", "Where a user is signed in.",
             columns="id address way since_at_ms seen_at_ms agent")]),
    Act("users.views.user_end_sessions", "system/users/<int:pk>/sessions/",
        ADMIN, takes=FORM, posts=True, confirms=True, calls=[
        Call("DELETE users/<username>/sessions", "user end-sessions NAME", "End all sessions, or one: --session ID.",
             takes=WORD, query="session")]),
    Act("users.views.user_set_active", "system/users/<int:pk>/active/", ADMIN, takes=FORM, posts=True, confirms=True),
    Act("users.views.user_second_factor_off", "system/users/<int:pk>/second-factor/",
        ADMIN, takes=FORM, posts=True, confirms=True, calls=[
        Call("DELETE users/<username>/second-factor", "user second-factor-off NAME", "For who has lost the phone.",
             takes=WORD)]),
    Also("users", [
        Call("GET system/second-factor", "user second-factor-rule", "Which roles need a second factor.")]),
    Act("users.views.second_factor_rule", "system/users/second-factor/",
        ADMIN, takes=FORM, posts=True, confirms=True, calls=[
        Call("PUT system/second-factor", "user second-factor-rule set", "Which roles need one: --role, or none.",
             takes=SETTINGS, body="roles=role:list")]),
    Act("users.views.user_secret", "system/users/<int:pk>/made/<str:ticket>/", ADMIN),
    Act("users.views.user_reset_password", "system/users/<int:pk>/reset-password/",
        ADMIN, takes=FORM, posts=True, confirms=True, calls=[
        Call("POST users/<username>/password", takes=SETTINGS)]),
    # --- users of the wire
    Act("users.wire_user_views.wire_users", "system/wire-users/", ADMIN, curl="q sort", calls=[
        Call("GET wire-users", "wire-user list", "Users of the wire, who sign requests to the broker.",
             query=f"q sort {PAGE}", lists=True,
             columns="name user_type enabled requires_tls secrets last.request last.at_ms last.address last.tls")]),
    Act("users.wire_user_views.wire_user", "system/wire-users/<name:name>/", ADMIN, calls=[
        Call("GET wire-users/<name>", "wire-user show NAME", "One user of the wire, with its entries.")]),
    Act("users.wire_user_views.wire_user_create", "create/wire-user/", ADMIN, takes=FORM, confirms=True, calls=[
        Call("POST wire-users", "wire-user create NAME",
             "Make one; its secret is shown once, or is in --secret-file. --type Normal or Super.",
             takes=SETTINGS, body="user_type=type", fixed="name={name}", dry_run=True, shape="secret")]),
    Act("users.wire_user_views.wire_import", "create/wire-users/", ADMIN, takes=DEFINITIONS, confirms=True, calls=[
        Call("POST wire-imports", "wire-user import FILE",
             "Make users of Apache's plain_acl.yml, with a report; - for standard input.", takes=DEFINITIONS,
             dry_run=True, shape="definitions")]),
    Act("users.wire_user_views.wire_user_act", "system/wire-users/<name:name>/act/",
        ADMIN, takes=FORM, posts=True, confirms=True, calls=[
        Call("POST wire-users/<name>/acts/<act>", "wire-user enable NAME", "Take its requests again.", takes=SETTINGS,
             dry_run=True),
        Call("POST wire-users/<name>/acts/<act>", "wire-user disable NAME",
             "Disconnect its clients and refuse them; secrets and entries stay.", takes=SETTINGS, dry_run=True,
             ask_first=True),
        Call("POST wire-users/<name>/acts/<act>", "wire-user make-super NAME", "Let it do everything.", takes=SETTINGS,
             dry_run=True, ask_first=True),
        Call("POST wire-users/<name>/acts/<act>", "wire-user make-normal NAME", "Let it do what its entries allow.",
             takes=SETTINGS, dry_run=True, ask_first=True),
        Call("POST wire-users/<name>/acts/<act>", "wire-user require-tls NAME", "Refuse what it asks in clear.",
             takes=SETTINGS, dry_run=True, ask_first=True),
        Call("POST wire-users/<name>/acts/<act>", "wire-user allow-clear NAME", "Take what it asks in clear, too.",
             takes=SETTINGS, dry_run=True, ask_first=True),
        Call("POST wire-users/<name>/acts/<act>", "wire-user rotate NAME",
             "Make a new secret, shown once, or take that in --secret-file; the present one stays good.",
             takes=SETTINGS, dry_run=True, shape="secret"),
        Call("POST wire-users/<name>/acts/<act>", "wire-user end-old-secret NAME",
             "Refuse the older secret; its clients are disconnected.", takes=SETTINGS, dry_run=True, ask_first=True)]),
    Act("users.wire_user_views.wire_user_quotas", "system/wire-users/<name:name>/quotas/",
        ADMIN, takes=FORM, posts=True, confirms=True, calls=[
        Call("PATCH wire-users/<name>/quotas", "wire-user quotas NAME",
             "Limit it: --send-bytes, --pull-bytes and --requests a second, --connections; 0 is no limit.",
             takes=SETTINGS, body="send_bytes:int pull_bytes:int requests:int connections:int", dry_run=True),
        Call("DELETE wire-users/<name>/quotas", "wire-user remove-quotas NAME", "Let the defaults count for it.",
             takes=WORD, dry_run=True, ask_first=True)]),
    Act("users.wire_user_views.wire_user_delete", "system/wire-users/<name:name>/delete/",
        ADMIN, takes=FORM, confirms=True, calls=[
        Call("DELETE wire-users/<name>", "wire-user delete NAME", "Delete it with its secrets and entries.", takes=WORD,
             dry_run=True, ask_first=True)]),
    Act("users.wire_user_views.wire_user_secret", "system/wire-users/<name:name>/made/<str:ticket>/", ADMIN),
    Also("wire_user", [
        Call("GET wire-users/<name>/entries", "policy list USER", "What a user of the wire may do.",
             columns="policy resource decision actions sources")]),
    Act("users.wire_user_views.wire_user_entry", "system/wire-users/<name:name>/entry/",
        ADMIN, takes=FORM, posts=True, confirms=True, calls=[
        Call("POST wire-users/<name>/entries", "policy add USER RESOURCE",
             "Add an entry, as Topic:orders* --action Pub, or replace the one of this resource. --source: only "
             "from there.", takes=SETTINGS, body="actions=action:list sources=source:list decision policy",
             fixed="resource={resource}", dry_run=True)]),
    Act("users.wire_user_views.wire_user_entry_remove", "system/wire-users/<name:name>/entry/remove/",
        ADMIN, takes=FORM, posts=True, confirms=True, calls=[
        Call("DELETE wire-users/<name>/entries/<path:resource>", "policy remove USER RESOURCE", "Remove an entry.",
             takes=WORD, query="policy", dry_run=True, ask_first=True)]),
    Act("users.wire_user_views.wire_access", "system/wire-access/", ADMIN, curl="resource! sort", calls=[
        Call("GET wire-access", "policy who RESOURCE", "Who may do something on one, as Topic:orders.",
             query=f"sort {PAGE}", fixed="resource={resource}", columns="user user_type actions some", lists=True)]),
    Act("users.wire_user_views.wire_refusals", "system/wire-refusals/", ADMIN, curl="q sort", calls=[
        Call("GET wire-refusals", "policy refusals", "What was refused, or in report mode would be, and still is.",
             query=f"q sort {PAGE}", columns="user resource actions reason count last_at_ms address", lists=True)]),
    Also("wire_user", [
        Call("GET wire-users/<name>/decision", "policy check USER",
             "Whether it may: --action Pub --resource Topic:orders --address 10.0.0.5, and which entry decides.",
             query="action resource address")]),
    Act("users.wire_user_views.wire_user_compare", "system/wire-users/<name:name>/compare/", ADMIN, calls=[
        Call("GET wire-users/<name>/comparison", "policy compare USER",
             "What RocketMQ 5.3.3 would decide otherwise by its entries.")]),
    # --- API tokens
    Act("users.token_views.tokens", "system/tokens/", VIEWER, names=OWN, calls=[
        Call("GET tokens", "token list", "API tokens.", query=PAGE,
             columns="id name owner role topic_pattern group_pattern expires_at_ms revoked_at_ms", lists=True)]),
    Act("users.token_views.token_create", "system/tokens/new/", VIEWER, takes=FORM, confirms=True, names=OWN, calls=[
        Call("POST tokens", "token create NAME", "Create a token; its secret is shown once.", takes=SETTINGS,
             body=f"{_RIGHTS} expires_in_days:int", fixed="name={name}")]),
    Act("users.token_views.token_created", "system/tokens/<int:pk>/made/<str:ticket>/", VIEWER, names=OWN),
    Act("users.token_views.token_revoke", "system/tokens/<int:pk>/revoke/",
        VIEWER, takes=FORM, posts=True, confirms=True, names=OWN, calls=[
        Call("DELETE tokens/<int:token_id>", "token disable ID", "Revoke a token.", takes=WORD)]),
    # --- the audit log
    Act("audit.views.audit", "system/audit/", ADMIN, curl="q result", calls=[
        Call("GET audit", "audit list", "Who changed what, newest first.",
             query=f"{TIMES} q action actor target kind result {PAGE}",
             columns="id at_ms actor action target result address", lists=True)]),
    Act("audit.views.audit_check", "system/audit/check/", ADMIN, takes=FORM, posts=True, calls=[
        Call("POST audit/checks", takes=WORD)]),
)  # fmt: skip

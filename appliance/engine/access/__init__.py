"""Access control over the wire: users, the permissions in their policies, and the gate that checks them.

    policies.py    permissions of a user: entries, and which of them decides; PURE
    apache_order.py     what 5.3.3 decides by the same entries; PURE
    apache_accounts.py  accounts of its ACL 1.0 as users; PURE
    asked.py       permissions that each request code needs; PURE
    book.py        users and policies, in a journal
    unknown_fields.py  what only a newer version knows of them; PURE
    supers_in_clear.py  Super users who sign in clear from other machines
    gate.py        stands before every handler of a port
    requests.py    3001 to 3010, as mqadmin sends them

Nothing of it is imported while `accessControl` is `off`.
Source: RocketMQ 5.3.3 `auth`. That decides by the order of creation, lets some codes pass unchecked and answers with
secrets; RocketBox does not. docs/access-control.md lists the cases.
"""

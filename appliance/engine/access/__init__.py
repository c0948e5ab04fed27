"""Who may do what over the wire: users, what their policies allow, and the gate that asks for it.

    signature.py   a request is its user's: HMAC-SHA1 over fields and body; PURE
    policies.py    what a user may: entries, and which of them decides; PURE
    asked.py       what each request code asks for; PURE
    book.py        users and policies, in a journal
    gate.py        stands before every handler of a port
    requests.py    3001 to 3010, as mqadmin sends them

Nothing of it is imported while `accessControl` is `off`.
Source: RocketMQ 5.3.3 `auth`; where that decides by the order of creation, lets a code pass unasked, or answers a
secret, ours does not. docs/access-control.md says so case by case.
"""

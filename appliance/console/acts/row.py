"""What one row of `acts` says, and the words that it uses.

The fields of a command (`query`, `body`) are `name`, `name:type` or `name=option:type`: `name` is the API's, the option
is `--name` with dashes unless another one is given. Types: text (without one), int, bool (`--x`, `--no-x`), time, list
(may be repeated), ints, pairs (`--x key=value`), int_pairs (`--x key=12`), number, or the words that a text may be, as
`ndjson|csv`. A dot in a name leads into a nested object.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from ...engine.named_tuple import NamedTuple
from ..users.roles import Rule

# --- how large a body may be, in bytes
# For an operation without parameters: some programs send `{}` anyway.
WORD = 1024
# The settings of a topic, a group or a token; the longest name has 1,024 characters.
SETTINGS = 16 * 1024
# A form; the longest one, with all options that may be changed, has some 3 KB.
FORM = 64 * 1024
# Thousands of topics and groups as text; a form makes up to three characters of one.
DEFINITIONS = 3 * 1024 * 1024 + FORM
# A schema of bodies: 256 KiB in base64, or in a form.
SCHEMA = 416 * 1024
# A test message: as the broker's options say, `request_bodies.largest_send`.
SEND = -1
# A file of messages to import. Two can be on their way at once.
UPLOAD = 32 * 1024 * 1024 - FORM

# --- pages that users with patterns may see; all others are about the whole broker
# About the users themselves, or with nothing of the broker.
OWN = "own"
# A list from which `scope.cut` leaves out names.
LIST = "list"
# With the name of a topic, or of a group, in the address.
TOPIC, GROUP = "topic", "group"
# The view checks for itself: the replay in its address determines the group.
REPLAY = "replay"

# --- options of many commands
PAGE = "limit:int cursor"
TIMES = "from:time to:time"

_ARGUMENT = re.compile(r"<(?:[a-z]+:)?([a-z_]+)>")


def names_in(route: str) -> list[str]:
    """Return the names of the arguments in an address of a page or of an operation."""
    return _ARGUMENT.findall(route)


def with_names(route: str, names: Sequence[str]) -> str:
    """Return a route with {names} in the places of its arguments, in their order."""
    left = iter(names)
    return _ARGUMENT.sub(lambda _: f"{{{next(left)}}}", route)


class Call(NamedTuple):
    """An operation of the API, and the command that calls it. An operation with several commands has a line for each.

    operation: method and route below /api/v1. words: as "topic edit NAME"; capitals are arguments, which stand for
    the route's in their order; "" without a command. says: its help. takes: most bytes of the body. query, body:
    fields. fixed: fields that the command itself sets, as "action=commit". columns: of a list, those shown without
    --json; a dot leads into a nested object, and one with a "?" is shown when the answer has it. lists: the answer
    has items and a cursor. ask_first: its effect is shown, and has to be confirmed, before it is done. shape: the
    function in `shapes.py` that makes the body. waits: a job that --wait waits for. raw: the answer is a file. follows:
    it is asked again and again with the cursor of the last answer, until Ctrl-C. own_names: the operation looks itself
    which names its caller may access; else the caller needs the topic or group in the route, or without one all names.
    """

    operation: str
    words: str = ""
    says: str = ""
    takes: int = 0
    query: str = ""
    body: str = ""
    fixed: str = ""
    columns: str = ""
    lists: bool = False
    dry_run: bool = False
    force: bool = False
    ask_first: bool = False
    shape: str = ""
    waits: str = ""
    raw: bool = False
    follows: bool = False
    own_names: bool = False

    @property
    def key(self) -> str:
        """Its name in `access.ACCESS`."""
        return self.operation.replace(" ", " api/v1/", 1)

    @property
    def noun(self) -> str:
        return self.words.split()[0]

    @property
    def name(self) -> str:
        return " ".join(word for word in self.words.split() if not word.isupper())

    @property
    def arguments(self) -> list[str]:
        return [word.lower() for word in self.words.split() if word.isupper()]

    @property
    def asks(self) -> str:
        """Method and path below /api/v1, with {arguments}; the route's <act> is the command's last word."""
        method, _, route = self.operation.partition(" ")
        return f"{method} /{with_names(route.replace('<act>', self.name.rpartition(' ')[2]), self.arguments)}"


class Act(NamedTuple):
    """A page, or an act with its form, and the operations that show or do the same, with the same rule.

    view: as "topics.views.topic_edit", a function below `console`, whose name is the address's; without a module when
    `appliance/urls.py` has the address. takes: most bytes of the body; 0 where no POST is taken. names: whose names it
    is about, for users with patterns; "" closes it to them. master: does not work on a slave. curl: the page shows its
    first GET as a command, with these parameters of the page's filter; one with a "!" is needed; None: no command.
    """

    view: str
    address: str | None
    rule: Rule
    takes: int = 0
    posts: bool = False
    confirms: bool = False
    names: str = ""
    master: bool = False
    curl: str | None = ""
    calls: Sequence[Call] = ()

    @property
    def name(self) -> str:
        return self.view.rpartition(".")[2]

    @property
    def methods(self) -> list[str]:
        return ["POST"] if self.posts else ["GET", "HEAD", "POST"] if self.takes else ["GET", "HEAD"]


class Also(NamedTuple):
    """More operations of a page, in the place that their commands have in the help."""

    name: str
    calls: Sequence[Call]

"""`rocketbox topic|group|message|dlq|delayed|transaction|token|config|job ...`: runs a command line, by the table.

Exit status: 0 done; 1 the awaited job failed; 2 a wrong command line, or an act that was not confirmed; 3 no such
thing; 4 not allowed; 5 a conflict with the present state, or something would be lost; 6 a value is refused; 7 no server
answers, or it cannot do it now.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Any
from urllib.parse import quote

from ...console.acts import CALLS
from ...console.acts.row import Call
from ...engine.errors import StartError
from ...engine.plain_text import plain
from ..moment import moment
from . import show
from .client import LOCAL, Problem, Server, Unreachable, local_options, server
from .shapes import OPTIONS as SHAPE_OPTIONS
from .shapes import SHAPES

#: The operations that have a command.
VERBS = tuple(call for _, call in CALLS if call.words)
JOB_FAILED, WRONG, NOT_FOUND, NOT_ALLOWED, CONFLICT, REFUSED, UNREACHABLE = range(1, 8)
_STATUS = {401: NOT_ALLOWED, 403: NOT_ALLOWED, 404: NOT_FOUND, 409: CONFLICT, 412: CONFLICT, 503: UNREACHABLE}

_SERVER = ("--url", "--token", "--token-file", *LOCAL)
_FLAGS = ("--json", "--dry-run", "--force", "--yes", "--all", "--wait")
LOOK_S = 0.25
#: Values that a switch may have all the same, as in --on true.
_TRUTHS = {"true": True, "yes": True, "on": True, "false": False, "no": False, "off": False}
ENDED = ("done", "failed", "cancelled", "interrupted")

SHARED = """\
Everywhere:
  --json             the API's own answer
  --url URL          the console's address (ROCKETBOX_URL; http://127.0.0.1:8080)
  --token-file FILE  a file with an API token (ROCKETBOX_TOKEN_FILE), --token or ROCKETBOX_TOKEN: the token itself.
                     Without any, on the server's machine, a token is made for the command: then give --data-dir, -c,
                     --bind and --http-port (or --https-port) as to `rocketbox serve`.
Where something changes:
  --dry-run          only print what would change
  --force            do it despite what is in the way        --yes  do not ask
Lists: --all for every page. Times, in this machine's zone: "2026-11-21 13:34", 10:00, "yesterday 18:00", "2 h ago",
  "2 days ago 10:00", "in 10 min"; with a zone as 2026-11-21T13:34:32Z; or milliseconds since 1970.
Exit status: 0 done, 1 the job failed, 2 wrong command line or not confirmed, 3 not found, 4 not allowed,
  5 conflict, 6 refused value, 7 no answer."""


@dataclass
class Command:
    """A parsed command line."""

    verb: Call
    arguments: dict[str, str]
    given: dict[str, str] = field(default_factory=dict)
    flags: set[str] = field(default_factory=set)
    query: dict[str, Any] = field(default_factory=dict)
    body: dict[str, Any] = field(default_factory=dict)

    @property
    def path(self) -> str:
        path = self.verb.asks.split()[1]
        return path.format(**{name: quote(value, safe="") for name, value in self.arguments.items()})

    @property
    def method(self) -> str:
        return self.verb.asks.split()[0]


def run(noun: str, words: Sequence[str]) -> int:
    """Run one command; return the exit status. Raises StartError for a wrong command line."""
    if {"--help", "-h"} & set(words) or not words:
        print(help_text(noun, words))
        return 0 if words else WRONG
    command = parse(noun, words)
    as_json = "--json" in command.flags
    if command.verb.name == "ha status" and _is_local(command):
        return _set_status(command)
    try:
        if command.verb.name == "token create" and (_is_local(command) or _would_make_a_token(command)):
            return _token_for_keeps(command)
        with server(command.given, os.environ) as found:
            return _done(command, found)
    except Unreachable as error:
        print(f"rocketbox: no server answers: {plain(str(error))}", file=sys.stderr)
        return UNREACHABLE
    except StartError as error:
        if command.verb.name not in _SET_ACTS or not _is_local(command) or _has_console(command):
            raise
        raise StartError(f"{error} {_NEEDS_CONSOLE}") from None
    except Problem as error:
        _say_problem(error, as_json)
        return _STATUS.get(error.status, UNREACHABLE if error.status >= 500 else REFUSED)


# --- the command line


def parse(noun: str, words: Sequence[str]) -> Command:
    """Parse a command line. Raises StartError, one sentence."""
    plain_words, given, flags, values = _sorted_out(noun, list(words))
    verb = _verb_of(noun, plain_words)
    options = options_of(verb)
    rest = plain_words[len(verb.name.split()) - 1 :]
    if len(rest) != len(verb.arguments):
        few = [f"[{option}]" for option in options] if 0 < len(options) < 4 else ["[options]"]
        raise StartError(f"It goes: rocketbox {' '.join((verb.words, *few))}; see rocketbox {noun} --help.")
    command = Command(verb, dict(zip(verb.arguments, rest, strict=True)), given, flags)
    for name, value in values:
        option, negative = name, False
        if option not in options and option.startswith("--no-"):
            option, negative = "--" + option[5:], True
        if option in SHAPE_OPTIONS.get(verb.shape, ()):
            command.given[option] = value or ""
            continue
        if option not in options:
            raise _no_option(name, (*options, *SHAPE_OPTIONS.get(verb.shape, ())))
        part, wire, kind = options[option]
        target = command.query if part == "query" else command.body
        _take(target, wire, kind, option, value, negative)
    for flag, allowed in (("--dry-run", verb.dry_run), ("--force", verb.force), ("--all", verb.lists),
                          ("--wait", bool(verb.waits))):  # fmt: skip
        if flag in flags and not allowed:
            raise StartError(f"{flag} means nothing to rocketbox {verb.name}.")
    for pair in verb.fixed.split():
        name, _, text = pair.partition("=")
        said: Any = text.format(**command.arguments) if "{" in text else {"true": True, "false": False}.get(text, text)
        (command.body if command.method != "GET" else command.query)[name] = said
    return command


def _sorted_out(
    noun: str, words: list[str]
) -> tuple[list[str], dict[str, str], set[str], list[tuple[str, str | None]]]:
    """Sort words into (arguments, options of the server, flags, the verb's options with their values)."""
    verbs = [verb for verb in VERBS if verb.noun == noun]
    bools = {f"--{name}" for verb in verbs for name in _names(verb, "bool")}
    known = {name for verb in verbs for name in (*options_of(verb), *SHAPE_OPTIONS.get(verb.shape, ()))}
    others: list[str] = []
    given: dict[str, str] = {}
    flags: set[str] = set()
    values: list[tuple[str, str | None]] = []
    while words:
        word = words.pop(0)
        if word == "--":
            others += words
            break
        if not word.startswith("-") or word == "-":
            others.append(word)
            continue
        name, equals, value = word.partition("=")
        if name in _FLAGS:
            flags.add(name)
        elif name in bools or (name.startswith("--no-") and "--" + name[5:] in bools):
            has_word = not equals and bool(words) and words[0] in _TRUTHS
            values.append((name, words.pop(0) if has_word else value if equals else None))
        else:
            if name not in known and name not in _SERVER:
                raise _no_option(name, (*known, *_FLAGS, *_SERVER))
            if not equals:
                if not words:
                    raise StartError(f"{name} needs a value.")
                value = words.pop(0)
            if name in _SERVER:
                given[name] = value
            else:
                values.append((name, value))
    return others, given, flags, values


def _no_option(name: str, known: Sequence[str]) -> StartError:
    near = get_close_matches(name, known, n=1)
    return StartError(f"There is no option {plain(name)} here{f': do you mean {near[0]}?' if near else '.'}")


def _verb_of(noun: str, words: Sequence[str]) -> Call:
    verbs = {verb.name.partition(" ")[2]: verb for verb in VERBS if verb.noun == noun}
    word = " ".join(words[:2]) if " ".join(words[:2]) in verbs else words[0] if words else ""
    if word not in verbs:
        near = get_close_matches(word, verbs, n=1)
        more = f"do you mean {near[0]}?" if near else f"there are {', '.join(verbs)}."
        raise StartError(f"There is no command rocketbox {noun} {word}: {more}")
    return verbs[word]


def fields_of(text: str) -> dict[str, tuple[str, str]]:
    """Return field -> (option without its dashes, type) of a line of the table."""
    found = {}
    for one in text.split():
        rest, _, kind = one.partition(":")
        name, _, option = rest.partition("=")
        found[name] = ((option or name).replace("_", "-"), kind or "text")
    return found


def options_of(verb: Call) -> dict[str, tuple[str, str, str]]:
    """Return option -> (query or body, the API's name, type)."""
    return {
        f"--{option}": (part, name, kind)
        for part, text in (("query", verb.query), ("body", verb.body))
        for name, (option, kind) in fields_of(text).items()
    }


def _names(verb: Call, wanted: str) -> list[str]:
    return [option for text in (verb.query, verb.body) for option, kind in fields_of(text).values() if kind == wanted]


def _take(target: dict[str, Any], name: str, kind: str, option: str, value: str | None, negative: bool) -> None:
    head, dot, rest = name.partition(".")
    if dot:
        return _take(target.setdefault(head, {}), rest, kind, option, value, negative)
    if kind == "bool":
        truth = True if value is None else _TRUTHS.get(value)
        if truth is None or (negative and value is not None):
            raise StartError(f"{option} takes no value: it is {option} or --no-{option[2:]}.")
        target[name] = truth != negative
        return
    text = value or ""
    match kind:
        case "int" | "ints":
            if not (text.removeprefix("-").isascii() and text.removeprefix("-").isdigit()):
                raise StartError(f"{option} needs a whole number, not {text}.")
            if kind == "int":
                target[name] = int(text)
            else:
                target.setdefault(name, []).append(int(text))
        case "list":
            target.setdefault(name, []).append(text)
        case "pairs" | "int_pairs":
            key, equals, inner = text.rpartition("=") if kind == "int_pairs" else text.partition("=")
            if not equals or (kind == "int_pairs" and not (inner.isascii() and inner.isdigit())):
                raise StartError(f"{option} needs KEY={'NUMBER' if kind == 'int_pairs' else 'VALUE'}, not {text}.")
            target.setdefault(name, {})[key] = int(inner) if kind == "int_pairs" else inner
        case "number":
            try:
                target[name] = float(text)
            except ValueError:
                raise StartError(f"{option} needs a number, not {text}.") from None
        case "time":
            target[name] = moment(option, text)
        case _:
            target[name] = text


#: The placeholder for a value of a type.
_VALUES = {"text": "TEXT", "int": "N", "ints": "N", "list": "TEXT", "number": "NUMBER", "time": "TIME"}
_VALUES |= {"pairs": "KEY=VALUE", "int_pairs": "KEY=N", "bool": ""}
_REPEATED = ("list", "ints", "pairs", "int_pairs")


def help_text(noun: str, words: Sequence[str]) -> str:
    """Return the commands of a noun and their options, or one command and its options if the words name it."""
    try:
        return _help_of(_verb_of(noun, [word for word in words if not word.startswith("-")]))
    except StartError:
        pass
    lines = [f"usage: rocketbox {noun} VERB [options]; rocketbox {noun} VERB --help: what the options take", ""]
    for verb in VERBS:
        if verb.noun == noun:
            lines.append(f"  rocketbox {verb.words}")
            lines.append(f"      {verb.says}")
            options = [*SHAPE_OPTIONS.get(verb.shape, ()), *options_of(verb), *(["--wait"] if _begins(verb) else [])]
            if options:
                lines.append(f"      {' '.join(options)}")
    return "\n".join([*lines, "", SHARED])


def _help_of(verb: Call) -> str:
    lines = [f"usage: rocketbox {verb.words} [options]", "", verb.says, ""]
    lines += [f"  {option} TEXT" for option in SHAPE_OPTIONS.get(verb.shape, ())]
    for option, (_, _, kind) in options_of(verb).items():
        negative = f", --no-{option[2:]}" if kind == "bool" else ""
        again = "  (again for more)" if kind in _REPEATED else ""
        lines.append(f"  {option}{negative} {_VALUES.get(kind, kind)}".rstrip() + again)
    if _begins(verb):
        lines += [
            "  --wait             wait for its end: the exit status is 0 when it was done, and 1 when it was not.",
            "                     Without it, 0 only says that it has begun.",
        ]
    return "\n".join([*lines, "", SHARED])


def _begins(verb: Call) -> bool:
    """True if a command begins something that goes on when it has answered."""
    return bool(verb.waits) and not verb.asks.startswith("GET ")


# --- the act


def _done(command: Command, found: Server) -> int:
    verb = command.verb
    if verb.raw:
        for piece in found.pieces(command.path):
            sys.stdout.buffer.write(piece)
        sys.stdout.buffer.flush()
        return 0
    if command.method == "GET" and verb.waits:
        return _wait(command, found, command.path)
    body: dict[str, Any] | bytes | None = None
    if verb.shape:
        body = SHAPES[verb.shape](command.arguments, command.body, command.given)
    elif command.method in ("POST", "PATCH", "PUT") and (command.body or verb.body or verb.fixed):
        body = command.body
    query = {name: str(value).lower() if isinstance(value, bool) else value for name, value in command.query.items()}
    if "--force" in command.flags:
        query["force"] = "true"
    dry = "--dry-run" in command.flags
    if verb.ask_first and not dry and "--yes" not in command.flags and not _confirmed(command, found, query, body):
        return WRONG
    if dry:
        query["dry_run"] = "true"
    if verb.follows:
        return _follow(command, found, query)
    answer = found.ask(command.method, command.path, query, body)
    if "--all" in command.flags:
        _rest(command, found, query, answer)
    if "--wait" in command.flags:
        return _wait(command, found, _place_of(answer, verb.waits))
    _print(command, answer)
    return 0


def _rest(command: Command, found: Server, query: dict[str, Any], answer: dict[str, Any]) -> None:
    """Add every further page to the answer; a page may be empty and have a next one."""
    while answer.get("next_cursor"):
        page = found.ask("GET", command.path, query | {"cursor": answer["next_cursor"]})
        answer["items"] += page["items"]
        answer["next_cursor"] = page.get("next_cursor")


def _follow(command: Command, found: Server, query: dict[str, Any]) -> int:
    """Print what comes, until Ctrl-C: a line each, with --json an object each."""
    columns = command.verb.columns.split()
    if "body_chars" not in query:
        columns.remove("glance")
    widths: list[int] = []
    cursor, missed = None, 0
    try:
        while True:
            answer = found.ask("GET", command.path, query | ({} if cursor is None else {"cursor": cursor}))
            cursor = answer["next_cursor"]
            rows = answer["items"]
            if "--json" in command.flags:
                lines = [json.dumps(row) for row in rows]
            else:
                lines = show.more_of_a_table(rows, columns, widths)
            if lines:
                print("\n".join(lines), flush=True)
            missed += answer["unread"] + answer["left_out"] * (query.get("one_in", 1) == 1)
            if missed and sys.stderr.isatty():
                print(f"\rrocketbox: {missed} messages came too fast to be shown", end="\n", file=sys.stderr)
                missed = 0
            time.sleep(LOOK_S)
    except KeyboardInterrupt:
        return 0


def _confirmed(command: Command, found: Server, query: dict[str, Any], body: Any) -> bool:
    """Show what would happen, and have it confirmed; without a terminal --yes is needed."""
    if not sys.stdin.isatty():
        raise StartError(f"rocketbox {command.verb.name} asks before it acts, and has no terminal for that: add --yes.")
    plan = found.ask(command.method, command.path, query | {"dry_run": "true"}, body)
    _print_people(command, plan)
    name = next(iter(command.arguments.values()), "yes")
    print(f"Type {plain(name)} to do it: ", end="", flush=True)
    if sys.stdin.readline().strip() == name:
        return True
    print("rocketbox: nothing was changed.", file=sys.stderr)
    return False


def _place_of(answer: dict[str, Any], waits: str) -> str:
    job = answer.get("job") if waits == "replay" else answer
    if not isinstance(job, dict):
        raise StartError("Nothing was started that could be waited for.")
    below = {"replay": "replays", "report": "reports/runs"}.get(waits, "jobs")
    return f"/{below}/{quote(str(job['id']), safe='')}"


def _wait(command: Command, found: Server, path: str) -> int:
    """Wait until the job has ended; its progress goes to standard error."""
    said = ""
    while True:
        job = found.ask("GET", path)
        far = job.get("progress") or job
        done, total = far.get("done", far.get("replayed", 0)), far.get("total")
        now = f"{job['state']} {done} of {'?' if total is None else total}"
        if now != said and sys.stderr.isatty():
            print(f"\r{now:<60}", end="", file=sys.stderr, flush=True)
            said = now
        if job["state"] in ENDED:
            break
        time.sleep(LOOK_S)
    if said:
        print(file=sys.stderr)
    _print(command, job)
    return 0 if job["state"] == "done" else JOB_FAILED


def _print(command: Command, answer: dict[str, Any]) -> None:
    if "--json" in command.flags:
        print(json.dumps(answer, indent=2))
    else:
        _print_people(command, answer)


def _print_people(command: Command, answer: dict[str, Any]) -> None:
    if show.is_change(answer):
        lines = show.change(answer)
    elif show.is_diagnosis(answer):
        lines = show.diagnosis(answer)
    elif show.is_message(answer):
        lines = show.message(answer)
    elif {"report", "tiles"} <= answer.keys():
        from .show_report import report

        lines = report(answer)
    elif show.is_series(answer):
        lines = show.series(answer)
    elif answer.keys() == {"text"}:
        lines = [plain(line) for line in str(answer["text"]).splitlines()]
    elif not answer:
        lines = ["done"]
    elif isinstance(rows := answer.get("items", answer.get("options")), list):
        lines = show.table(rows, command.verb.columns.split())
        if answer.get("next_cursor"):
            lines.append(f"(more: --all, or --cursor {answer['next_cursor']})")
    else:
        lines = show.facts(answer, columns=command.verb.columns.split())
    print("\n".join(lines))


def _say_problem(error: Problem, as_json: bool) -> None:
    if as_json:
        print(json.dumps(error.problem, indent=2), file=sys.stderr)
        return
    lines = [f"rocketbox: {plain(str(error))}"]
    details = [f"{one['field']}: {one['message']}" for one in error.problem.get("errors") or ()]
    details += [str(one["text"]) for one in error.problem.get("blockers") or ()]
    if "force=true" in (error.problem.get("hint") or ""):
        details.append("--force does it all the same.")
    lines += [f"  {plain(one)}" for one in details if one not in str(error)]
    print("\n".join(lines), file=sys.stderr)


# --- the set of brokers

_SET_ACTS = ("ha switch", "ha adopt")
_NEEDS_CONSOLE = (
    "If this member has no console: to choose who leads is an administrator's act that may cost messages, and the "
    "broker's ports do not take it. Start the member with the console role and an administrator; or stop the leader "
    "(SIGTERM), and another member that is in sync leads."
)


def _has_console(command: Command) -> bool:
    from ..set_status import has_console

    try:
        return has_console(local_options(command.given))
    except StartError:
        return True


def _set_status(command: Command) -> int:
    """Show the set's status: from the console, which has most of it; if none answers, from the leader store and this
    machine's files."""
    from ..set_status import has_console, set_status

    options = local_options(command.given)
    why = "it has none, or none that was set up"
    if has_console(options):
        try:
            with server(command.given, os.environ) as found:
                return _done(command, found)
        except Problem as error:
            if error.status not in (401, 403, 503):
                _say_problem(error, "--json" in command.flags)
                return _STATUS.get(error.status, UNREACHABLE if error.status >= 500 else REFUSED)
            why = str(error)
        except (Unreachable, StartError) as error:
            why = str(error)
    answer = set_status(options)
    if answer is None:
        print("rocketbox: This broker is in no set with fail-over: haStore is not set.", file=sys.stderr)
        return NOT_FOUND
    print(f"rocketbox: the console of this member does not tell: {plain(why)}", file=sys.stderr)
    _print(command, answer)
    return 0 if answer["store_ok"] else UNREACHABLE


# --- tokens


def _is_local(command: Command) -> bool:
    """True if neither a token nor a server is named."""
    return not _has_token(command) and "--url" not in command.given and "ROCKETBOX_URL" not in os.environ


def _would_make_a_token(command: Command) -> bool:
    """True if the command would use a token of this directory that ends with the command: a token made by means of it
    would end, too."""
    named = {"--data-dir", "-c"} & command.given.keys() or "ROCKETBOX_DATA_DIR" in os.environ
    return bool(named) and not _has_token(command)


def _has_token(command: Command) -> bool:
    given = {"--token", "--token-file"} & command.given.keys()
    return bool(given or {"ROCKETBOX_TOKEN", "ROCKETBOX_TOKEN_FILE"} & os.environ.keys())


def _token_for_keeps(command: Command) -> int:
    from .minted import create_for_keeps

    options = local_options(command.given)
    fields = {name: value for name, value in command.body.items() if name != "name"}
    _print(command, create_for_keeps(options, command.arguments["name"], fields))
    return 0


__all__ = ["VERBS", "help_text", "options_of", "parse", "run"]

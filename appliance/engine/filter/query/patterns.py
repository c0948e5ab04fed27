"""Regular expressions that take time in proportion to the text, whatever the pattern.

Python's `re` tries one way after another and holds the GIL until it is done: `(a+)+$` on forty letters would stop the
broker for hours, and forbidding such patterns by their looks forbids good ones and lets bad ones through (`a*a*a*b` has
nothing nested). So a pattern becomes a nondeterministic automaton, from which the states of a deterministic one are
made while a text is read (Thompson; the lazy kind). Each character is one look in a dict. A new state takes time in
proportion to the automaton, whose size is bounded, and the number of new states for one text is bounded as well
(`MAX_WORK`). All of it is ordinary bytecode, between which other threads run.

Back references, look-ahead and look-behind would need to try again, so they are refused.
"""

from __future__ import annotations

from collections.abc import Callable

#: Most characters of a pattern, states of its automaton and nested groups, and the largest count in {}.
MAX_PATTERN = 500
MAX_STATES = 1200
MAX_DEPTH = 20
MAX_REPEATS = 200
#: Most steps of the automaton for one text, about 0.2 us each; and most moves that are remembered.
MAX_WORK = 200_000
_MOVES_KEPT = 20_000

_WORD = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_")
_START, _IN_WORD, _OUTSIDE, _END = range(4)

Accepts = Callable[[str], bool]


class PatternError(Exception):
    """A pattern that is refused. position: of the wrong character, from 0."""

    def __init__(self, message: str, position: int) -> None:
        super().__init__(message)
        self.position = position


class TooMuchWork(Exception):
    """The text needs more than MAX_WORK steps."""


class _State:
    """A state of the nondeterministic automaton. accepts: tests the character that leads on; None for a state that is
    passed without one. where: "" or the place where it may be passed: ^ $ b B."""

    __slots__ = ("accepts", "on", "where")

    def __init__(self, accepts: Accepts | None = None, where: str = "") -> None:
        self.accepts = accepts
        self.where = where
        self.on: list[int] = []


class _Move:
    """A state of the deterministic automaton: the set of states of the other one, and the kind of character before."""

    __slots__ = ("before", "moves", "states")

    def __init__(self, states: frozenset[int], before: int) -> None:
        self.states = states
        self.before = before
        self.moves: dict[str, _Move | None] = {}


class Pattern:
    """Belongs to one thread. `found_in(text)` is True if the pattern matches anywhere in the text."""

    def __init__(self, text: str) -> None:
        """Raises PatternError."""
        if len(text) > MAX_PATTERN:
            raise PatternError(f"a pattern has at most {MAX_PATTERN} characters", MAX_PATTERN)
        reader = _Reader(text)
        self._take(reader.states, *reader.read())

    def _take(self, states: list[_State], first: int, last: int) -> None:
        self._states = states
        self._first = first
        self._last = last
        self._known: dict[tuple[frozenset[int], int], _Move] = {}
        self._remembered = 0
        self._begin = self._move(frozenset((first,)), _START)

    @classmethod
    def like(cls, text: str) -> Pattern:
        """Compile SQL's LIKE: it matches the whole text, with % for anything, _ for one character, and a backslash
        before either for the sign itself. Raises PatternError."""
        if len(text) > MAX_PATTERN:
            raise PatternError(f"a pattern has at most {MAX_PATTERN} characters", MAX_PATTERN)
        reader = _Reader("")
        first, at = reader.add(where="^"), 0
        last = first
        while at < len(text):
            sign = text[at]
            if sign == "\\" and text[at + 1 : at + 2] in ("%", "_", "\\"):
                at += 1
                state = reader.add(_one(text[at]))
            elif sign == "%":
                state = reader.add()
                loop = reader.add(_anything)
                reader.states[state].on.append(loop)
                reader.states[loop].on.append(state)
            else:
                state = reader.add(_anything if sign == "_" else _one(sign))
            reader.states[last].on.append(state)
            last = state
            at += 1
        ends, accepted = reader.add(where="$"), reader.add()
        reader.states[last].on.append(ends)
        reader.states[ends].on.append(accepted)
        made = cls.__new__(cls)
        made._take(reader.states, first, accepted)
        return made

    def found_in(self, text: str) -> bool:
        """True if the pattern matches anywhere in the text. Raises TooMuchWork."""
        here = self._begin
        work = 0
        for sign in text:
            try:
                following = here.moves[sign]
            except KeyError:
                work += len(here.states) + 8
                if work > MAX_WORK:
                    raise TooMuchWork from None
                following = self._step(here, sign)
            if following is None:
                return True
            here = following
        return self._last in self._passed(here, _END)

    def _move(self, states: frozenset[int], before: int) -> _Move:
        key = (states, before)
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = _Move(states, before)
        return found

    def _step(self, here: _Move, sign: str) -> _Move | None:
        """Return the state that `sign` leads to; None if the pattern has matched before it."""
        kind = _IN_WORD if sign in _WORD or (sign > "\x7f" and sign.isalnum()) else _OUTSIDE
        reached = self._passed(here, kind)
        following: _Move | None = None
        if self._last not in reached:
            states = self._states
            on = [self._first]
            for number in reached:
                accepts = states[number].accepts
                if accepts is not None and accepts(sign):
                    on += states[number].on
            following = self._move(frozenset(on), kind)
        if self._remembered >= _MOVES_KEPT:
            self._known = {}
            self._remembered = 0
            here.moves = {}
            self._begin = self._move(frozenset((self._first,)), _START)
        here.moves[sign] = following
        self._remembered += 1
        return following

    def _passed(self, here: _Move, after: int) -> set[int]:
        """Return the states that are reached without a character, between the kinds of character before and after."""
        states, before = self._states, here.before
        found = set(here.states)
        waiting = list(found)
        while waiting:
            state = states[waiting.pop()]
            if state.accepts is not None or (state.where and not _is_there(state.where, before, after)):
                continue
            for number in state.on:
                if number not in found:
                    found.add(number)
                    waiting.append(number)
        return found


def _is_there(where: str, before: int, after: int) -> bool:
    if where == "^":
        return before == _START
    if where == "$":
        return after == _END
    return ((before == _IN_WORD) != (after == _IN_WORD)) == (where == "b")


# --- what one character may be


def _anything(sign: str) -> bool:
    return True


def _dot(sign: str) -> bool:
    return sign != "\n"


def _one(wanted: str) -> Accepts:
    return lambda sign: sign == wanted


def _digit(sign: str) -> bool:
    return sign.isdigit()


def _word(sign: str) -> bool:
    return sign in _WORD or (sign > "\x7f" and sign.isalnum())


def _space(sign: str) -> bool:
    return sign.isspace()


def _other_than(accepts: Accepts) -> Accepts:
    return lambda sign: not accepts(sign)


_CLASSES: dict[str, Accepts] = {"d": _digit, "w": _word, "s": _space}
_CLASSES |= {name.upper(): _other_than(accepts) for name, accepts in list(_CLASSES.items())}
_CONTROLS = {"n": "\n", "r": "\r", "t": "\t", "f": "\f", "v": "\v", "0": "\0"}

#: First and last state; the last one is passed without a character and leads nowhere yet.
_Part = tuple[int, int]


class _Reader:
    """Reads a pattern into states."""

    def __init__(self, text: str) -> None:
        self.states: list[_State] = []
        self._text = text
        self._at = 0
        self._depth = 0
        self._any_case = False

    def add(self, accepts: Accepts | None = None, where: str = "") -> int:
        if len(self.states) >= MAX_STATES:
            raise PatternError(f"the pattern comes to more than {MAX_STATES} steps: repeat less", self._at)
        self.states.append(_State(accepts, where))
        return len(self.states) - 1

    def read(self) -> _Part:
        if self._text.startswith("(?i)"):
            self._any_case = True
            self._at = 4
        found = self._alternatives()
        if self._at < len(self._text):
            raise PatternError("there is no ( for this )", self._at)
        return found

    def _peek(self) -> str:
        return self._text[self._at : self._at + 1]

    def _alternatives(self) -> _Part:
        first, last = self.add(), self.add()
        while True:
            begin, end = self._sequence()
            self.states[first].on.append(begin)
            self.states[end].on.append(last)
            if self._peek() != "|":
                return first, last
            self._at += 1

    def _sequence(self) -> _Part:
        first = last = self.add()
        while self._peek() not in ("", "|", ")"):
            begin, end = self._repeated()
            self.states[last].on.append(begin)
            last = end
        return first, last

    def _repeated(self) -> _Part:
        at = self._at
        part = self._atom()
        end_of_atom = self._at
        counts = self._counts()
        if counts is None:
            return part
        low, high = counts
        if self._counts() is not None:
            raise PatternError("two repetitions in a row", self._at - 1)
        behind = self._at
        parts: list[_Part] = []
        for number in range(max(low, 1 if high is None else high)):
            if number:  # read the atom again, from
                self._at = at
                part = self._atom()
                assert self._at == end_of_atom
            parts.append(part)
        self._at = behind
        first = last = self.add()
        for number, (begin, end) in enumerate(parts):
            if number >= low:
                # This part and all behind it may be left out: add a way from here to the end.
                skip = self.add()
                self.states[last].on += (begin, skip)
                joined = self.add()
                self.states[end].on.append(joined)
                self.states[skip].on.append(joined)
                last = joined
            else:
                self.states[last].on.append(begin)
                last = end
            if high is None and number == len(parts) - 1:
                self.states[end].on.append(begin)
        return first, last

    def _counts(self) -> tuple[int, int | None] | None:
        sign = self._peek()
        if sign in ("*", "+", "?"):
            self._at += 1
            found: tuple[int, int | None] | None = {"*": (0, None), "+": (1, None), "?": (0, 1)}[sign]
        elif sign == "{":
            found = self._braces()
        else:
            return None
        if found is not None and self._peek() in ("?", "+"):
            self._at += 1  # how greedy it is makes no difference to whether it matches
        return found

    def _braces(self) -> tuple[int, int | None]:
        end = self._text.find("}", self._at)
        low, comma, high = self._text[self._at + 1 : max(end, 0)].partition(",")
        numbers = (low, high) if comma and high else (low,)
        if end < 0 or not all(text.isascii() and text.isdigit() and len(text) < 6 for text in numbers):
            raise PatternError("{ begins a count such as {2} or {2,5}; write \\{ for the sign", self._at)
        least = int(low)
        most = None if comma and not high else int(high) if comma else least
        if max(least, most or 0) > MAX_REPEATS or (most is not None and most < least):
            raise PatternError(f"counts go up to {MAX_REPEATS}, the smaller one first", self._at)
        self._at = end + 1
        return least, most

    def _atom(self) -> _Part:
        at, sign = self._at, self._peek()
        self._at += 1
        if sign == "(":
            return self._group(at)
        if sign in ("*", "+", "?", "{"):
            raise PatternError(f"there is nothing that {sign} could repeat", at)
        if sign in ("^", "$"):
            return self._place(sign)
        if sign == ".":
            return self._sign(_dot)
        if sign == "[":
            return self._sign(self._set(at))
        if sign == "\\":
            return self._escaped(at)
        return self._sign(self._single(sign))

    def _sign(self, accepts: Accepts) -> _Part:
        first, last = self.add(accepts), self.add()
        self.states[first].on.append(last)
        return first, last

    def _place(self, where: str) -> _Part:
        first, last = self.add(where=where), self.add()
        self.states[first].on.append(last)
        return first, last

    def _single(self, wanted: str) -> Accepts:
        if self._any_case and wanted.lower() != wanted.upper():
            both = {wanted, wanted.lower(), wanted.upper()}
            return lambda sign: sign in both
        return _one(wanted)

    def _group(self, at: int) -> _Part:
        if self._peek() == "?":
            if not self._text.startswith("?:", self._at):
                raise PatternError(
                    "(?...) is not known here but for (?:...), and (?i) at the beginning: what looks ahead or back "
                    "could take very long",
                    at,
                )
            self._at += 2
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise PatternError(f"more than {MAX_DEPTH} groups one in another", at)
        found = self._alternatives()
        if self._peek() != ")":
            raise PatternError("this ( has no )", at)
        self._at += 1
        self._depth -= 1
        return found

    def _escaped(self, at: int) -> _Part:
        sign = self._peek()
        if sign in ("b", "B"):
            self._at += 1
            return self._place(sign)
        if sign in _CLASSES:
            self._at += 1
            return self._sign(_CLASSES[sign])
        return self._sign(self._single(self._escape(at)))

    def _escape(self, at: int) -> str:
        """Read the one character behind a backslash."""
        sign = self._peek()
        self._at += 1
        if not sign:
            raise PatternError("nothing stands behind the backslash", at)
        if sign in _CONTROLS:
            return _CONTROLS[sign]
        if sign in ("x", "u"):
            digits = self._text[self._at : self._at + (2 if sign == "x" else 4)]
            if len(digits) != (2 if sign == "x" else 4) or not all(one in "0123456789abcdefABCDEF" for one in digits):
                raise PatternError("\\x takes two and \\u four hexadecimal digits", at)
            self._at += len(digits)
            return chr(int(digits, 16))
        if sign.isdigit():
            raise PatternError("what was found before cannot be asked for again: it could take very long", at)
        if sign.isalpha():
            raise PatternError(f"\\{sign} is not known here", at)
        return sign

    def _set(self, at: int) -> Accepts:
        """Read a set of characters, behind its [."""
        negated = self._peek() == "^"
        self._at += negated
        singles: set[str] = set()
        spans: list[tuple[str, str]] = []
        classes: list[Accepts] = []
        first = True
        while True:
            begin, sign = self._at, self._peek()
            if not sign:
                raise PatternError("this [ has no ]", at)
            self._at += 1
            if sign == "]" and not first:
                break
            first = False
            if sign == "\\":
                if self._peek() in _CLASSES:
                    classes.append(_CLASSES[self._peek()])
                    self._at += 1
                    continue
                sign = self._escape(begin)
            if self._peek() == "-" and self._text[self._at + 1 : self._at + 2] not in ("", "]"):
                self._at += 1
                high = self._peek()
                self._at += 1
                if high == "\\":
                    high = self._escape(self._at - 1)
                if high < sign:
                    raise PatternError("the end of this range is before its beginning", begin)
                spans.append((sign, high))
            else:
                singles.add(sign)
        any_case = self._any_case

        def within(sign: str) -> bool:
            return (
                sign in singles
                or any(low <= sign <= high for low, high in spans)
                or any(accepts(sign) for accepts in classes)
            )

        def accepts(sign: str) -> bool:
            found = within(sign) or (any_case and (within(sign.lower()) or within(sign.upper())))
            return found != negated

        return accepts

"""What a broker keeps of a log that it copies, and what its leader does about it.

Messages wait in old log files: at delay levels, for a time of their own, for a decision. A leader stores them again
before it deletes such a file. A follower whose disk is fuller, or keeps files for less long, would delete the file
before, and lack the messages when it leads. So it asks the leader, and deletes a file when nothing waits there:

    follower   keeper of its cleaner: wants to delete up to X    ->  asks with `leaving` = X
    leader     its cleaner asks its own keepers, for X at most       `free`, before which nothing waits, durably, and
                                                                     `end` of its log, before which the copies lie
    follower   its log is durable up to `end`                    ->  files before `free` may go
"""

from __future__ import annotations

from collections.abc import Sequence

#: Part of a leader's log, from its beginning on, of which followers may have what waits stored again. Anyone may
#: ask, so a message is not stored again before the log has grown by the rest.
_PART = 3 / 4


class LeadersNeeds:
    """A follower's side. `keep` is for its cleaner, the rest for the thread of the request to the leader."""

    def __init__(self) -> None:
        #: Physical offset up to which files are to be deleted here; 0 for none. Written by the cleaner.
        self.wanted = 0
        #: Before it nothing waits at the leader; None if the leader does not tell such a thing.
        self._free: int | None = 0
        # A greater one, and where this log must have come to before it counts.
        self._next: tuple[int, int] | None = None

    def keep(self, end: int) -> str | None:
        """Return why log files up to this physical offset must stay for now; None if they may go."""
        if self._free is None or end <= self._free:
            return None
        self.wanted = max(self.wanted, end)
        return "the leader has not said yet that nothing waits there"

    def fitting(self, ends: Sequence[int]) -> int:
        """Return how many of the files with these ends to delete now: those that may go, or all if `keep` keeps the
        first or none."""
        free = self._free
        count = len(ends) if free is None else sum(end <= free for end in ends)
        if 0 < count < len(ends):
            self.wanted = max(self.wanted, ends[-1])
        return count or len(ends)

    def told(self, free: int | None, end: int = 0) -> int | None:
        """Note what the leader said, None if it is of an older version, or Apache's. Return where this log has to be
        durable up to before `reached` is called; None if there is nothing new.

        A later answer does not put that off: the leader's log grows, and a log that is always a moment behind would
        never come to the end of the last one.
        """
        if free is None:
            self._free = self._next = None
        elif self._next is None and (self._free is None or free > self._free):
            self._next = free, end
        return None if self._next is None else self._next[1]

    def reached(self) -> None:
        """Let the files go that the leader has named: what waited there was stored again, and is here."""
        if self._next is not None:
            self._free, self._next = max(self._next[0], self._free or 0), None


class FollowersWishes:
    """Of a leader: what followers want to delete. Any thread writes; the cleaner acts."""

    def __init__(self) -> None:
        self.wanted = 0
        #: Physical offset before which nothing waits, durably.
        self.free = 0

    def ask(self, end: int, log_begin: int, log_end: int) -> bool:
        """Note that a follower wants to delete files up to `end`; True if there is something to do for it."""
        self.free = max(self.free, log_begin)
        self.wanted = max(self.wanted, min(end, log_begin + int((log_end - log_begin) * _PART)))
        return self.wanted > self.free

"""The list of name servers from a web server, as Java's clients read it: the first line is "host:port;host:port"."""

from __future__ import annotations

from .errors import InvalidOption
from .wire import parse_host_port

#: For the whole page.
_TIMEOUT_S = 3.0
_MOST_BYTES = 64 * 1024


class Discovery:
    """Constant after construction. Nothing is read before `fetch`."""

    def __init__(self, url: str) -> None:
        if not isinstance(url, str) or not url.lower().startswith(("http://", "https://")):
            raise InvalidOption(f"discovery_url begins with http:// or https://, and this one does not: {url!r}.")
        if "@" in url.split("/", 3)[2]:
            raise InvalidOption("discovery_url has no user and password: the list of name servers is no secret.")
        self.url = url
        #: Without what may be a key.
        self._shown = url.partition("?")[0]

    def fetch(self) -> tuple[tuple[str, ...], str]:
        """Return (addresses, ""), or ((), why there are none). Waits for 3 s at most, and for the name's resolution."""
        import http.client

        from .web_page import read_page

        try:
            text = read_page(self.url, _MOST_BYTES, _TIMEOUT_S).decode()
            found = tuple(parse_host_port(part.strip()) for part in _first_line(text).split(";") if part.strip())
        except (OSError, ValueError, http.client.HTTPException) as error:
            return (), f"{self._shown} gives no list of name servers: {error}"
        return found, "" if found else f"{self._shown} gives an empty list of name servers"


def _first_line(text: str) -> str:
    return next(iter(text.strip().splitlines()), "")

"""A connection tried as a client would make it, step by step, and what is wrong with it, in words.

    host       of the name server's host, looked up here
    port       of the name server, reached
    tls        the handshake, the names in the certificate, its time; each port that a client connects to
    route      of the topic, as the name server gives it
    broker     each address that the route leads to, reached
    access     what the user may do: send to the topic, consume it as the group

It connects to the name server's port, and to the brokers that our name server knows. A host that was typed may be
anybody's: where its route leads elsewhere, the way ends, or it could have any port tried. It is made on the server's
machine, so what lies between a client and this machine is not tried. It signs nothing: what a user may is looked up in
the same entries (`WireUsers.decide`), so that a trial is not what a user did last.
"""

from __future__ import annotations

import socket
import ssl
import time
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import closing
from typing import TYPE_CHECKING, Any

import msgspec

from ...address_check import ANSWER_LIMIT_MS, Fields, Pair
from ...config import BrokerConfig
from ...errors import CallTimeout, ConnectError, FrameError, InvalidInput, NotFound
from ...host_port import (
    bracketed,
    cannot_reach,
    host_of,
    join_host_port,
    parse_told_host,
    resolved,
    split_host_port,
)
from ...named_tuple import NamedTuple
from ...protocol.codes import RequestCode, ResponseCode
from ...protocol.command import RemotingCommand
from ...protocol.names import GROUP_MAX_LENGTH, TOPIC_MAX_LENGTH, is_legal_group, topic_name_error
from ...remoting.client import RemotingClient
from ...tls.certificate import trusting
from ..health.checks import is_loopback
from ..health.finding import Finding, degraded, failed, fine
from ..health.limits import CERTIFICATE_DAYS
from ..sentences import Sentence, say
from ..snapshots import Route

if TYPE_CHECKING:
    from ..access.users import WireUsers

CONNECT_S = 1.5
#: Most brokers of a route that are tried.
_MOST_BROKERS = 8
#: The parts of a certificate that each client checks: "" for a release without TLS, "trust" (who signed it, and its
#: time), or "names", these and the host's name.
TLS_OF = {"java": "trust", "java4": "trust", "go": "", "python": "names", "cpp": "trust", "python-cpp": ""}
_ACTIONS = (("Pub", "Topic"), ("Sub", "Topic"), ("Sub", "Group"))


class Asked(NamedTuple):
    """host: of the name server, as the client would write it; "" for the advertised one. client: one of TLS_OF. tls: it
    encrypts. user: who signs, "" for nobody; None: the caller may not ask of users. address: the client's, for entries
    that name sources."""

    topic: str
    group: str
    host: str = ""
    client: str = "python"
    tls: bool = False
    user: str | None = ""
    address: str = "127.0.0.1"


class Place(NamedTuple):
    """The server to try. namesrv: "host:port" of the name server, None without one; runs_here: in this process. bind:
    where this process listens. own_check: fields of requests that count for no user. route: of a topic, as the name
    server of this process has it; NotFound, Unavailable. users: None while access control is off."""

    namesrv: str | None
    runs_here: bool
    bind: str
    options: BrokerConfig
    own_check: Fields
    route: Callable[[str], Route]
    users: WireUsers | None


def trial(place: Place, asked: Asked) -> Iterator[Finding]:
    """Yield what was found, in the order of the steps; a step that fails ends those that need it. Blocks for some
    seconds. Raises InvalidInput (host, client, topic, group, address)."""
    if asked.client not in TLS_OF:
        raise InvalidInput("client", say("one_of", field="client", choices=", ".join(TLS_OF)))
    if topic_name_error(asked.topic) is not None:
        raise InvalidInput("topic", say("bad_topic_name", length=TOPIC_MAX_LENGTH))
    if not is_legal_group(asked.group):
        raise InvalidInput("group", say("bad_group_name", length=GROUP_MAX_LENGTH))
    if place.namesrv is None:
        yield failed("port", say("try_no_name_server"))
    else:
        host, port = split_host_port(place.namesrv)
        if asked.host:
            try:
                host = parse_told_host(asked.host)
            except ValueError:
                raise InvalidInput("host", say("try_no_host", host=asked.host)) from None
        yield from _way(place, asked, host, port)
    yield from _access(place, asked)


def _way(place: Place, asked: Asked, host: str, port: int) -> Iterator[Finding]:
    addresses = resolved(host)
    if not addresses:
        yield failed("host", say("try_unknown_name", host=host))
        return
    if addresses != (host.strip("[]"),):  # an address leads to itself
        yield fine("host", say("try_name", host=host, addresses=", ".join(addresses)))
    address = join_host_port(host, port)
    refusal = _refusal(host, port, addresses)
    if refusal is not None:
        bound = refusal == "try_refused" and cannot_reach(host, place.bind)
        yield failed("port", say("try_bound" if bound else refusal, address=address, bind=place.bind, host=host))
        return
    yield fine("port", say("try_port", address=address))
    speaks_tls = asked.tls and bool(TLS_OF[asked.client])
    failing = False
    for finding in _encryption(place, asked, address):
        failing |= finding.health == "failed"
        yield finding
    if failing:
        return
    brokers = yield from _route(place, asked, address, speaks_tls)
    for broker in brokers[:_MOST_BROKERS]:
        yield from _broker(place, asked, broker, host, speaks_tls)


def _refusal(host: str, port: int, addresses: tuple[str, ...]) -> str | None:
    """Return the key of the sentence that says why there is no connection; None if there is one."""
    try:
        socket.create_connection((addresses[0], port), CONNECT_S).close()
    except ConnectionRefusedError:
        return "try_refused"
    except TimeoutError:
        return "try_silent"
    except OSError:
        return "try_no_way"
    return None


def _encryption(place: Place, asked: Asked, address: str) -> Iterator[Finding]:
    mode = place.options.tls_mode
    if asked.tls and not TLS_OF[asked.client]:
        judged = failed if mode == "enforcing" else degraded
        yield judged("tls", say(f"try_without_tls_{'needed' if mode == 'enforcing' else 'possible'}"))
    elif asked.tls:
        yield from _certificate(place, asked, address)
    elif mode == "enforcing":
        yield failed("tls", say("try_tls_needed"))
    elif mode == "permissive":
        yield degraded("tls", say("try_tls_possible"))
    else:
        yield fine("tls", say("try_plain"))


def _certificate(place: Place, asked: Asked, address: str) -> Iterator[Finding]:
    """Shake hands with a port, and judge its certificate as the client does."""
    pair = _pair(place)
    if place.options.tls_mode == "disabled":
        yield failed("tls", say("try_no_tls"))
        return
    try:
        shown, _ = _shaken(address, trusting(None), pair)
        _, found = _shaken(address, trusting(shown), pair)
        is_named = _is_named(address, shown, pair)
    except (OSError, ValueError) as error:
        reason = getattr(error, "reason", None) or getattr(error, "strerror", None) or str(error)
        yield failed("tls", say("try_no_handshake", address=address, reason=str(reason)))
        return
    end = found.get("notAfter")
    begin = found.get("notBefore")
    now = time.time()
    days = int((ssl.cert_time_to_seconds(end) - now) // 86_400) if isinstance(end, str) else 0
    names = _names(found)
    if days < 0:
        yield failed("tls", say("try_expired", address=address, count=-days))
    elif isinstance(begin, str) and ssl.cert_time_to_seconds(begin) > now:
        yield failed("tls", say("try_not_yet", address=address))
    elif TLS_OF[asked.client] == "names" and not is_named:
        said = say("try_unnamed", host=host_of(address), names=", ".join(names)) if names else None
        yield failed("tls", said or say("try_nameless", host=host_of(address)))
    elif days <= CERTIFICATE_DAYS:
        yield degraded("tls", say("try_ends_soon", address=address, count=days))
    else:
        yield fine("tls", say("try_certificate", address=address, count=days))
    if place.options.tls_client_auth == "required":
        yield degraded("tls", say("try_client_certificate"))


def _shaken(address: str, context: ssl.SSLContext, pair: Pair | None) -> tuple[bytes, Mapping[str, Any]]:
    """Shake hands; return the certificate that the port shows, and what it says if the context trusts it. Raises
    OSError."""
    if pair is not None:
        context.load_cert_chain(*pair)
    host, port = split_host_port(address)
    with (
        socket.create_connection((host, port), CONNECT_S) as sock,
        context.wrap_socket(sock, server_hostname=host) as tls,
    ):
        return tls.getpeercert(True) or b"", tls.getpeercert() or {}


def _is_named(address: str, certificate: bytes, pair: Pair | None) -> bool:
    """True if the certificate names the address's host, by the rules of OpenSSL."""
    context = trusting(certificate)
    context.check_hostname = True
    try:
        _shaken(address, context, pair)
    except ssl.SSLCertVerificationError:
        return False
    return True


def _names(found: Mapping[str, Any]) -> list[str]:
    return [value for kind, value in found.get("subjectAltName", ()) if kind in ("DNS", "IP Address")]


def _pair(place: Place) -> Pair | None:
    """Return the files of the certificate that is shown to a server that requires one; this process accepts its own."""
    options = place.options
    return (options.tls_cert_file, options.tls_key_file) if options.tls_client_auth == "required" else None


def _route(place: Place, asked: Asked, address: str, tls: bool) -> Generator[Finding, None, list[str]]:
    """Ask for the topic's route; yield findings, and return the addresses of its brokers."""
    try:
        answer = _answer(place, asked.topic, address, tls)
        if answer.code == ResponseCode.TOPIC_NOT_EXIST:
            yield _without_topic(place, asked)
        elif answer.code == 0:
            brokers = _masters(answer)
            if set(brokers).issubset(_our_brokers(place, asked.topic, tls) or ()):
                return (yield from _led(asked.topic, brokers))
            else:
                yield failed("route", say("try_other_name_server", address=address, namesrv=str(place.namesrv)))
        elif answer.code == ResponseCode.NO_PERMISSION and place.runs_here:
            ours = _our_brokers(place, asked.topic, tls)  # it tells users who sign, and this trial signs nothing
            if ours is not None:
                return (yield from _led(asked.topic, ours))
            yield _without_topic(place, asked)
        else:
            yield failed(
                "route", say("try_other_answer", address=address, number=answer.code, remark=answer.remark or "")
            )
    except (ConnectError, CallTimeout, FrameError, OSError, ValueError, RecursionError) as error:
        yield failed("route", say("try_no_answer", address=address, reason=str(error)))
    return []


def _answer(place: Place, topic: str, address: str, tls: bool) -> RemotingCommand:
    client = RemotingClient(address, connect_timeout_ms=ANSWER_LIMIT_MS, tls=tls, pair=_pair(place) if tls else None)
    request = RemotingCommand(RequestCode.GET_ROUTEINFO_BY_TOPIC, ext_fields={"topic": topic, **place.own_check})
    with closing(client):
        return client.invoke_sync(request, ANSWER_LIMIT_MS)


def _our_brokers(place: Place, topic: str, tls: bool) -> list[str] | None:
    """Return the brokers of a topic as our own name server knows them; None if it tells none. Raises what asking
    raises."""
    if not place.runs_here:
        answer = _answer(place, topic, str(place.namesrv), tls)
        return _masters(answer) if answer.code == 0 else None
    try:
        return [one.addresses["0"] for one in place.route(topic).brokers if "0" in one.addresses]
    except NotFound:
        return None


class _BrokerData(msgspec.Struct, rename="camel"):
    broker_addrs: dict[str, str]


class _RouteBody(msgspec.Struct, rename="camel"):
    broker_datas: list[_BrokerData] = []


def _masters(answer: RemotingCommand) -> list[str]:
    body = msgspec.json.decode(answer.body or b"{}", type=_RouteBody)
    return [data.broker_addrs["0"] for data in body.broker_datas if "0" in data.broker_addrs]


def _led(topic: str, brokers: list[str]) -> Generator[Finding, None, list[str]]:
    if brokers:
        yield fine("route", say("try_route", topic=topic, count=len(brokers)))
    else:
        yield degraded("route", say("try_no_master", topic=topic))
    return brokers


def _without_topic(place: Place, asked: Asked) -> Finding:
    if place.options.auto_create_topic_enable:
        return degraded("route", say("try_topic_comes", topic=asked.topic))
    return failed("route", say("try_no_topic", topic=asked.topic))


def _broker(place: Place, asked: Asked, address: str, host: str, tls: bool) -> Iterator[Finding]:
    """Try one address that the route leads to. host: of the name server, as the client writes it."""
    try:
        told, port = split_host_port(address)
    except ValueError:  # brokers that are not ours register what they like
        yield failed("broker", say("try_unknown_broker", address=address, host=address))
        return
    addresses = resolved(told)
    refusal = _refusal(told, port, addresses) if addresses else "try_unknown_broker"
    if is_loopback(address) and not is_loopback(join_host_port(host, port)):
        yield failed("broker", say("try_told_loopback", address=address))
    elif refusal is not None:
        yield failed("broker", say(refusal, address=address, host=bracketed(told)))
    else:
        only_here = is_loopback(address)
        yield fine("broker", say("try_broker_here" if only_here else "try_broker", address=address))
        if tls and told != host:
            yield from (one for one in _certificate(place, asked, address) if one.sentence.code in _OF_EACH_PORT)


#: Findings about a certificate that are told again for a broker's port.
_OF_EACH_PORT = ("try_no_handshake", "try_expired", "try_unnamed", "try_nameless")


def _access(place: Place, asked: Asked) -> Iterator[Finding]:
    users = place.users
    if users is None:
        yield (degraded if asked.user else fine)("access", say("try_user_unneeded" if asked.user else "try_open"))
        return
    # In report mode nothing is refused.
    enforces = users.mode == "enforce"
    wrong = failed if enforces else degraded
    if asked.user is None:
        yield degraded("access", say("try_user_unsaid" if enforces else "try_user_unsaid_reported"))
        return
    if not asked.user:
        yield wrong("access", say("try_no_user" if enforces else "try_no_user_reported"))
        return
    try:
        user = users.one(asked.user)
    except NotFound:
        yield wrong("access", say("try_unknown_user", user=asked.user))
        return
    if not user.enabled:
        yield wrong("access", say("try_disabled", user=asked.user))
        return
    if user.requires_tls and (place.options.tls_mode == "disabled" or not (asked.tls and TLS_OF[asked.client])):
        yield wrong("access", users.shut_out(user.name) or say("decided_over_tls", name=user.name))
        return
    refused = False
    for action, kind in _ACTIONS:
        resource = f"{kind}:{asked.topic if kind == 'Topic' else asked.group}"
        found = users.decide(asked.user, action, resource, asked.address)
        if not found.allowed:
            refused = True
            yield wrong("access", _why(found.sentence, asked, action, resource))
    if not refused:
        yield fine("access", say("try_may", user=asked.user, topic=asked.topic, group=asked.group))


def _why(decided: Sentence, asked: Asked, action: str, resource: str) -> Sentence:
    given = {"user": asked.user, "action": action, "resource": resource, "address": asked.address}
    if decided.code == "decided_deny":
        return say("try_denied", entry=str(decided.args["resource"]), **given)
    return say("try_no_entry", **given)

"""Back ends of the leader store, each loaded only where it is used.

    store = open_store("etcd://10.0.0.1:2379,10.0.0.2:2379,10.0.0.3:2379")

etcd://h:2379,...        the JSON gateway of etcd 3.4 and newer
etcds://...              the same over TLS
zookeeper://h:2181,...   ZooKeeper 3.5 and newer

No back end uses files or this process: the state that all members must agree on cannot live with one of them.
"""

from __future__ import annotations

from ...config import MAX_STORE_ENDPOINTS
from ...errors import StartError
from ...host_port import parse_host_port, split_host_port
from ..leader_store import LeaderStore
from .access import Access

#: Scheme -> port of an address without one.
PORTS = {"etcd": 2379, "etcds": 2379, "zookeeper": 2181}


def open_store(url: str, access: Access | None = None) -> LeaderStore:
    """Return the store at `url`; it connects on first use. Raises StartError if an address or a file cannot be used."""
    scheme, endpoints = parse_url(url)
    access = access or Access()
    if scheme == "zookeeper":
        if access.ca or access.certificate or access.key:
            raise StartError("haStore: TLS is for etcds:// only; a ZooKeeper is reached without it.")
        from .zookeeper import ZooKeeperStore

        return ZooKeeperStore(endpoints, access)
    from .etcd import EtcdStore

    return EtcdStore(endpoints, access, tls=scheme == "etcds")


def parse_url(url: str) -> tuple[str, tuple[tuple[str, int], ...]]:
    """Return (scheme, endpoints as (host, port)). Raises StartError."""
    scheme, separator, rest = url.partition("://")
    if not separator or scheme not in PORTS:
        raise StartError(f"haStore {url!r} does not begin with {', '.join(f'{name}://' for name in PORTS)}.")
    endpoints = []
    for part in rest.removesuffix("/").split(","):
        text = part.strip()
        if text.endswith("]") or ":" not in text:
            text = f"{text}:{PORTS[scheme]}"
        try:
            endpoints.append(split_host_port(parse_host_port(text)))
        except ValueError:
            raise StartError(f"haStore: {part.strip()!r} is not host:port.") from None
    if len(endpoints) > MAX_STORE_ENDPOINTS:
        raise StartError(f"haStore names {len(endpoints)} addresses; {MAX_STORE_ENDPOINTS} is the most.")
    return scheme, tuple(dict.fromkeys(endpoints))


def shortage(store: LeaderStore) -> str:
    """Return what a store lacks, or will lack soon, so that a person has to see to it; "" for nothing. Takes at most
    twice its time-out; raises nothing."""
    method = getattr(store, "shortage", None)
    return "" if method is None else method()


def tidy(store: LeaderStore, compact: bool) -> None:
    """Look after a store's history; called each hour. Takes at most its time-out; raises nothing.

    compact: have etcd forget its history up to the last call; otherwise only warn if nothing else compacts it.
    """
    method = getattr(store, "tidy", None)
    if method is not None:
        method(compact)

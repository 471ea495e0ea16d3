"""Where a webhook may go. A user names the URL, so it must not reach what only this machine can.

A name is resolved once, every address of it is judged, and the connection is made to those addresses and no others: a name
that answers otherwise a moment later (DNS rebinding) changes nothing.
"""

from __future__ import annotations

import re
import socket
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from urllib.parse import urlsplit

Address = IPv4Address | IPv6Address
Resolver = Callable[[str, int], Sequence[str]]
"""Host and port to addresses as text. Errors: OSError."""

MAX_URL_LENGTH = 2048
_MAX_ADDRESSES = 16
_LABEL = re.compile(r"(?!-)[A-Za-z0-9_-]{1,63}(?<!-)")
_DEFAULT_PORTS = {"https": 443, "http": 80}

_NEVER = tuple(
    (ip_network(network), reason)
    for network, reason in (
        ("169.254.0.0/16", "link-local, where clouds serve credentials"),
        ("fe80::/10", "link-local"),
        ("fd00:ec2::/32", "a cloud's metadata service"),
        ("168.63.129.16/32", "a cloud's own services"),
        ("192.0.0.0/24", "reserved for protocols"),
        ("100.64.0.0/10", "shared between providers and their customers"),
        ("64:ff9b::/96", "translated to IPv4 (NAT64)"),
        ("64:ff9b:1::/48", "translated to IPv4 (NAT64)"),
        ("2002::/16", "translated to IPv4 (6to4)"),
        ("192.88.99.0/24", "translated to IPv4 (6to4)"),
        ("2001::/32", "translated to IPv4 (Teredo)"),
        ("::ffff:0:0/96", "IPv4 in disguise"),
        ("::ffff:0:0:0/96", "translated to IPv4"),
        ("0.0.0.0/8", "this host, unspecified"),
        ("240.0.0.0/4", "reserved"),
        ("fec0::/10", "site-local"),
        ("3fff::/20", "reserved for documents"),
    )
)
_PRIVATE = tuple(
    ip_network(network)
    for network in ("127.0.0.0/8", "10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "::1/128", "fc00::/7")
)


class Refused(Exception):
    """The target is not one that webhooks may go to. The message is shown to the user."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Target:
    """A URL of an acceptable form, taken apart."""

    scheme: str
    host: str
    port: int
    path: str

    @property
    def authority(self) -> str:
        """The Host header."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == _DEFAULT_PORTS[self.scheme] else f"{host}:{self.port}"


def parse_target(url: str, *, allow_private: bool) -> Target:
    """Judge a URL's form, and its address where it names one. Errors: Refused."""
    if len(url) > MAX_URL_LENGTH:
        raise Refused(f"longer than {MAX_URL_LENGTH} characters")
    if not (url.isascii() and url.isprintable()) or " " in url or "\\" in url:
        raise Refused("only printable ASCII without spaces and backslashes; encode the rest")
    try:
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port
    except ValueError as error:
        raise Refused("not a URL") from error
    _check_form(parts.scheme, has_userinfo="@" in parts.netloc, has_fragment="#" in url, allow_private=allow_private)
    _check_host(host, allow_private=allow_private)
    if port == 0:
        raise Refused("port 0 cannot be reached")
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    return Target(scheme=parts.scheme, host=host, port=port or _DEFAULT_PORTS[parts.scheme], path=path)


def resolve_safely(target: Target, resolver: Resolver, *, allow_private: bool) -> tuple[str, ...]:
    """The addresses to connect to, every one of them acceptable. Errors: Refused; OSError when the name has none."""
    found = tuple(dict.fromkeys(resolver(target.host, target.port)))
    if not found:
        raise OSError("the name has no address")
    if len(found) > _MAX_ADDRESSES:
        raise Refused(f"the name has more than {_MAX_ADDRESSES} addresses")
    for text in found:
        reason = find_address_fault(text, allow_private=allow_private)
        if reason:
            raise Refused(f"{target.host} is at {text}: {reason}")
    return found


def find_address_fault(text: str, *, allow_private: bool) -> str | None:
    """Why an address is no target, or None when it is one."""
    try:
        address = ip_address(text)
    except ValueError:
        return "not an address"
    if isinstance(address, IPv6Address) and address.scope_id:
        return "an address of one interface"
    if address.is_multicast:
        return "multicast"
    for network, reason in _NEVER:
        if address.version == network.version and address in network:
            return reason
    if allow_private and any(address.version == network.version and address in network for network in _PRIVATE):
        return None
    return None if address.is_global and not address.is_reserved else "not a public address"


def resolve_by_system(host: str, port: int) -> Sequence[str]:
    """The machine's own resolver. Errors: OSError."""
    return [str(entry[4][0]) for entry in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)]


def _check_form(scheme: str, *, has_userinfo: bool, has_fragment: bool, allow_private: bool) -> None:
    if scheme != "https" and not (scheme == "http" and allow_private):
        raise Refused("must begin with https://")
    if has_userinfo:
        raise Refused("no credentials in the URL; deliveries are signed")
    if has_fragment:
        raise Refused("no fragment")


def _check_host(host: str, *, allow_private: bool) -> None:
    try:
        ip_address(host)
    except ValueError:
        if not host or len(host) > 253 or not all(_LABEL.fullmatch(part) for part in host.rstrip(".").split(".")):
            raise Refused("the host is not a name or an address") from None
        return
    reason = find_address_fault(host, allow_private=allow_private)
    if reason:
        raise Refused(f"{host}: {reason}")

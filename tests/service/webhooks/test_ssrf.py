"""Which URLs and addresses a webhook may go to."""

from __future__ import annotations

from ipaddress import IPv4Address, IPv6Address, ip_address

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.webhooks.ssrf import Refused, find_address_fault, parse_target, resolve_by_system, resolve_safely

TRAPS = [
    "169.254.169.254",
    "169.254.170.2",
    "fd00:ec2::254",
    "168.63.129.16",
    "100.64.0.1",
    "100.100.100.200",
    "192.0.0.192",
    "0.0.0.0",  # noqa: S104 - refused, not bound
    "::",
    "224.0.0.1",
    "239.255.255.250",
    "ff02::1",
    "255.255.255.255",
    "64:ff9b::a9fe:a9fe",
    "64:ff9b::8.8.8.8",
    "64:ff9b:1::1",
    "2002:a9fe:a9fe::1",
    "2002:808:808::1",
    "2001:0:808:808::1",
    "::ffff:169.254.169.254",
    "::ffff:8.8.8.8",
    "::ffff:0:8.8.8.8",
    "::127.0.0.1",
    "fe80::1",
    "fe80::1%eth0",
    "fec0::1",
    "2001:db8::1",
    "192.0.2.1",
    "198.18.0.1",
    "not-an-address",
]
PRIVATE = ["127.0.0.1", "127.8.8.8", "10.0.0.1", "172.16.0.1", "192.168.1.1", "::1", "fd12:3456::1"]
PUBLIC = ["8.8.8.8", "1.1.1.1", "2606:4700:4700::1111", "2001:4860:4860::8888"]


@pytest.mark.parametrize("address", TRAPS)
@pytest.mark.parametrize("allow_private", [False, True])
def test_traps_are_refused_always(address: str, allow_private: bool) -> None:
    assert find_address_fault(address, allow_private=allow_private)


@pytest.mark.parametrize("address", PRIVATE)
def test_private_addresses_need_the_setting(address: str) -> None:
    assert find_address_fault(address, allow_private=False)
    assert find_address_fault(address, allow_private=True) is None


@pytest.mark.parametrize("address", PUBLIC)
def test_public_addresses_are_targets(address: str) -> None:
    assert find_address_fault(address, allow_private=False) is None


@given(st.one_of(st.ip_addresses(v=4), st.ip_addresses(v=6)))
def test_no_address_that_is_not_global_is_ever_a_public_target(address: IPv4Address | IPv6Address) -> None:
    if find_address_fault(str(address), allow_private=False) is None:
        assert address.is_global
        assert not any((address.is_multicast, address.is_private, address.is_loopback, address.is_link_local))


@given(st.ip_addresses(v=4))
def test_no_translation_lets_a_private_address_through(address: IPv4Address) -> None:
    number = int(address)
    bases = ("64:ff9b::", "::", "::ffff:0:0", "::ffff:0:0:0")
    disguised = [IPv6Address(int(ip_address(base)) + number) for base in bases]
    disguised += [
        IPv6Address(int(ip_address("2002::")) + (number << 80)),
        IPv6Address(int(ip_address("2001::")) + number),
    ]
    assert all(find_address_fault(str(one), allow_private=True) for one in disguised if one != IPv6Address("::1"))


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("http://hooks.example.com/", "https"),
        ("ftp://hooks.example.com/", "https"),
        ("file:///etc/passwd", "https"),
        ("hooks.example.com", "https"),
        ("//hooks.example.com", "https"),
        ("https://", "host"),
        ("https:///path", "host"),
        ("https://user:word@hooks.example.com/", "credentials"),
        ("https://hooks.example.com@127.0.0.1/", "credentials"),
        ("https://hooks.example.com/#part", "fragment"),
        ("https://hooks.example.com/#", "fragment"),
        ("https://hooks.example.com:0/", "port"),
        ("https://hooks.example.com:99999/", "not a URL"),
        ("https://hooks.example.com:x/", "not a URL"),
        ("https://[::1/", "not a URL"),
        ("https://[::1]/", "not a public"),
        ("https://127.0.0.1/", "not a public"),
        ("https://169.254.169.254/latest/meta-data/", "link-local"),
        ("https://[::ffff:169.254.169.254]/", "disguise"),
        ("https://hooks.example.com\\@evil.example/", "ASCII"),
        ("https://hooks.example.com/a b", "ASCII"),
        ("https://hooks.example.com/\r\nHost: other", "ASCII"),
        ("https://hooks.example.com/\x00", "ASCII"),
        ("https://bücher.example/", "ASCII"),
        ("https://-a.example/", "host"),
        ("https://a..example/", "host"),
        ("https://" + "a" * 64 + ".example/", "host"),
        ("https://hooks.example.com/" + "a" * 2048, "longer"),
    ],
)
def test_a_url_of_bad_form_is_refused_with_its_reason(url: str, reason: str) -> None:
    with pytest.raises(Refused, match=reason):
        parse_target(url, allow_private=False)


def test_a_good_url_is_taken_apart() -> None:
    target = parse_target("https://hooks.example.com:8443/a/b?c=d", allow_private=False)
    assert (target.host, target.port, target.path) == ("hooks.example.com", 8443, "/a/b?c=d")
    assert target.authority == "hooks.example.com:8443"
    assert parse_target("https://hooks.example.com", allow_private=False).authority == "hooks.example.com"
    assert parse_target("http://[::1]:80", allow_private=True).authority == "[::1]"


def test_one_bad_address_among_good_ones_refuses_the_name() -> None:
    target = parse_target("https://hooks.example.com/", allow_private=False)
    with pytest.raises(Refused, match=r"169\.254\.169\.254"):
        resolve_safely(target, lambda _host, _port: ["8.8.8.8", "169.254.169.254"], allow_private=False)
    assert resolve_safely(target, lambda _host, _port: ["8.8.8.8", "8.8.8.8"], allow_private=False) == ("8.8.8.8",)


@pytest.mark.parametrize("host", ["localhost", "2130706433", "0x7f.1", "0177.0.0.1"])
def test_other_spellings_of_loopback_are_judged_by_their_address(host: str) -> None:
    """The system's own resolver reads some of them as 127.0.0.1; where it does not, the name has no address."""
    target = parse_target(f"https://{host}/", allow_private=False)
    with pytest.raises((Refused, OSError)):
        resolve_safely(target, resolve_by_system, allow_private=False)


def test_a_name_with_very_many_addresses_is_refused() -> None:
    target = parse_target("https://hooks.example.com/", allow_private=False)
    with pytest.raises(Refused, match="more than"):
        resolve_safely(target, lambda _host, _port: [f"8.8.8.{n}" for n in range(200)], allow_private=False)
    with pytest.raises(OSError, match="no address"):
        resolve_safely(target, lambda _host, _port: [], allow_private=False)

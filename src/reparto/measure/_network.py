"""What this machine's network looks like: interfaces, and which address peers would see."""

from __future__ import annotations

import contextlib
import ipaddress
import socket
import struct
from dataclasses import dataclass
from pathlib import Path

_SIOCGIFADDR = 0x8915
_SIOCGIFFLAGS = 0x8913
_IFF_UP = 1
#: Not in use by anybody (RFC 5737): a route to it is the route to elsewhere.
_ELSEWHERE = ("203.0.113.1", 9)


@dataclass(frozen=True, kw_only=True)
class Interface:
    """A network interface.

    Attributes:
        name: As the system calls it.
        addresses: Its addresses, IPv4 first.
        up: Whether it is switched on.
        mbits_per_s: Its nominal speed; 0 if unknown.
    """

    name: str
    addresses: tuple[str, ...] = ()
    up: bool = True
    mbits_per_s: int = 0

    @property
    def loopback(self) -> bool:
        """Whether it leads nowhere but here."""
        return any(is_loopback(address) for address in self.addresses)


def interfaces() -> tuple[Interface, ...]:
    """List the interfaces of this machine; on systems other than Linux only their names."""
    ipv6 = _ipv6_addresses()
    found = []
    for _, name in socket.if_nameindex():
        ipv4 = _ioctl(name, _SIOCGIFADDR)
        flags = _ioctl(name, _SIOCGIFFLAGS)
        addresses = [socket.inet_ntoa(ipv4[20:24])] if ipv4 else []
        found.append(
            Interface(
                name=name,
                addresses=(*addresses, *ipv6.get(name, ())),
                up=bool(struct.unpack_from("H", flags, 16)[0] & _IFF_UP) if flags else True,
                mbits_per_s=_speed(name),
            )
        )
    return tuple(found)


def peer_address() -> str:
    """Return the address that other machines would see; empty if there is no way to any.

    The host's name is not asked: on many machines it resolves to 127.0.1.1, and peers that are
    told this connect to themselves.
    """
    with contextlib.suppress(OSError), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as way:
        way.connect(_ELSEWHERE)  # asks the routing table, sends nothing
        return str(way.getsockname()[0])
    for interface in interfaces():
        if interface.up and not interface.loopback and interface.addresses:
            return interface.addresses[0]
    return ""


def name_addresses(name: str) -> tuple[str, ...]:
    """Return what a host's name resolves to."""
    with contextlib.suppress(OSError):
        found = socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)
        return tuple(dict.fromkeys(str(entry[4][0]) for entry in found))
    return ()


def is_loopback(address: str) -> bool:
    """Whether an address leads nowhere but here."""
    with contextlib.suppress(ValueError):
        return ipaddress.ip_address(address.partition("%")[0]).is_loopback
    return False


def _ioctl(name: str, request: int) -> bytes:
    try:
        import fcntl

        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            return fcntl.ioctl(probe, request, struct.pack("256s", name.encode()[:15]))
    except (ImportError, OSError):
        return b""


def _ipv6_addresses() -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    with contextlib.suppress(OSError):
        for line in Path("/proc/net/if_inet6").read_text().splitlines():
            digits, *_, name = line.split()
            found.setdefault(name, []).append(str(ipaddress.IPv6Address(int(digits, 16))))
    return found


def _speed(name: str) -> int:
    with contextlib.suppress(OSError, ValueError):
        return max(0, int(Path("/sys/class/net", name, "speed").read_text()))
    return 0

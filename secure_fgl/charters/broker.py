"""What a charter says of the broker: its servers, their root certificate, how long to wait."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.x509 import load_pem_x509_certificate

from crypto.samplers import entropy
from secure_fgl.errors import UsageError
from secure_fgl.store.files import Folder

__all__ = [
    "CARRIER",
    "DEADLINE",
    "KEY_FILE",
    "Broker",
    "is_public_key",
    "new_carrier_key",
    "new_seed",
    "url_of",
]

CARRIER = "carrier"
"""Folder of a party in which its carrier's key and connections lie; see `transports.broker`."""
KEY_FILE = "carrier.key"
"""Of the connection, closed to all but the carrier."""
DEADLINE = 600
"""Seconds that one exchange may take, where nobody says otherwise."""
PORT = 4222
_URL = re.compile(r"tls://([A-Za-z0-9][A-Za-z0-9.-]{0,252}|\[[0-9a-f:]{2,45}\]):([1-9][0-9]{0,4})")
_PUBLIC = re.compile(r"U[A-Z2-7]{55}")
_SHORTEST, _LONGEST = 1, 7 * 86_400  # seconds
_MOST = 16  # servers of a cluster


@dataclass(frozen=True)
class Broker:
    """The servers that carry a run.

    Attributes:
        urls: ``tls://HOST:PORT`` of each; any of them will do.
        root: the certificate (PEM) under which the servers' are; empty: one that systems know.
        deadline: seconds that one exchange may take; who has not answered by then has vanished.
    """

    urls: tuple[str, ...]
    root: str = ""
    deadline: int = DEADLINE

    @property
    def hosts(self) -> list[str]:
        """The servers' names."""
        return [_URL.fullmatch(url)[1].strip("[]") for url in self.urls]  # type: ignore[index]

    def document(self) -> dict[str, Any]:
        """Return plain data."""
        return {"urls": list(self.urls), "root": self.root, "deadline": self.deadline}

    @classmethod
    def of(cls, document: Mapping[str, Any]) -> Broker:
        """Read plain data; raises ValueError, KeyError or TypeError for another shape."""
        if set(document) != {"urls", "root", "deadline"}:
            raise ValueError("not a broker")
        made = cls(tuple(document["urls"]), document["root"], document["deadline"])
        if wrong := next(made.wrong(), ""):
            raise ValueError(wrong)
        return made

    def wrong(self) -> Iterator[str]:
        """Say what of it cannot be."""
        if not 1 <= len(self.urls) <= _MOST:
            yield f"a broker has 1 to {_MOST} servers"
        for url in self.urls:
            if not _URL.fullmatch(str(url)):
                yield f"{str(url)[:80]!r} is no server: tls://HOST:PORT"
        if type(self.deadline) is not int or not _SHORTEST <= self.deadline <= _LONGEST:
            yield f"an exchange takes {_SHORTEST} s to 7 days, in whole seconds"
        if self.root:
            try:
                load_pem_x509_certificate(self.root.encode("ascii"))
            except (ValueError, UnsupportedAlgorithm):
                yield "its root is no certificate"


def url_of(server: str) -> str:
    """Return ``tls://HOST:PORT`` for ``HOST``, ``HOST:PORT`` or itself; raises UsageError."""
    url = server if server.startswith("tls://") else f"tls://{server}"
    url = url if re.search(r":[0-9]+$", url) else f"{url}:{PORT}"
    if not _URL.fullmatch(url):
        raise UsageError(
            f"{server[:80]!r} is no server.", fix="--server fl.example.org, or tls://HOST:PORT"
        )
    return url


_USER, _USER_SEED = bytes([20 << 3]), bytes([(18 << 3) | (20 << 3) >> 5, 0])


def new_carrier_key(party: Path) -> str:
    """Make the key of a party's connection, keep it for its carrier, and return the public one.

    It is a key of its own, never the signing key: a server chooses what is signed at login.
    Source: NKeys, github.com/nats-io/nkeys: base32 over a prefix, the key and a CRC-16 (XMODEM).

    Raises:
        OSError: it cannot be written.
    """
    seed = entropy(32)
    public = Ed25519PrivateKey.from_private_bytes(seed).public_key().public_bytes_raw()
    folder = party / CARRIER
    folder.mkdir(mode=0o700, exist_ok=True)
    Folder(folder).write(KEY_FILE, _encoded(_USER_SEED + seed).encode() + b"\n")
    return _encoded(_USER + public)


def new_seed() -> str:
    """Return the seed of a connection's key that nobody announced."""
    return _encoded(_USER_SEED + entropy(32))


def is_public_key(text: object) -> bool:
    """Tell whether this is the public NKey of a user, its checksum included."""
    if not isinstance(text, str) or not _PUBLIC.fullmatch(text):
        return False
    return text == _encoded(base64.b32decode(text)[:-2]) and text.startswith("U")


def _encoded(data: bytes) -> str:
    checksum = binascii.crc_hqx(data, 0).to_bytes(2, "little")
    return base64.b32encode(data + checksum).decode("ascii").rstrip("=")

"""Checks of the engine's kit, offline, and of the way to its server, which alone sends anything."""

from __future__ import annotations

import contextlib
import socket
import ssl
from datetime import timedelta
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.types import PublicKeyTypes
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    PublicFormat,
    load_pem_private_key,
)

from secure_fgl.errors import UsageError
from secure_fgl.store.files import content
from secure_fgl.transports.nvflare.checks.hardening import check_belongs
from secure_fgl.transports.nvflare.checks.kit_files import KitFiles
from secure_fgl.transports.nvflare.checks.lines import NotChecked, Subject
from secure_fgl.transports.nvflare.checks.users import closed_to_us, named
from secure_fgl.transports.nvflare.engine.listener import OTHERS_READ
from secure_fgl.transports.nvflare.engine.memory import COMMUNICATION

__all__ = ["certificate", "in_force", "kit", "sending", "server_answers", "server_name"]

_SECONDS = 10.0
_SOON = timedelta(days=30)
_KEY_LIMIT = 1 << 16
_ANEW = "have the site's certificate made anew, and unpack the kit again"


def kit(subject: Subject) -> str:
    """The kit is of this party's site and one user's, apart from the party; its key is closed."""
    found = subject.kit
    closed = closed_to_us(subject.party) is not None
    site = found.site if closed else check_belongs(subject.party, found, subject.run)
    key = found.startup("ssl_private_key")
    if _mode(key) & 0o077:
        raise UsageError(
            f"{key} can be read by other users of this machine.", fix=f"chmod 600 {key}"
        )
    _check_owner(found)
    host, port = found.dialled
    said = f"site {site}, {_whom(found)} {host}:{port}"
    if closed:
        raise NotChecked(f"{said}; whether it is this party's, root sees")
    return said


def _check_owner(found: KitFiles) -> None:
    """See that nobody but the kit's user, and root, could change what is in force in it."""
    owner = found.folder.stat().st_uid
    for path, other in _owners(found.folder):
        if other not in (owner, 0):
            raise UsageError(
                f"{path} belongs to the user {named(other)}, and the kit to {named(owner)}.",
                why="who owns what is in force in a kit can widen it",
                fix=f"chown -R {owner} {found.folder}",
            )
    if not found.folder.stat().st_mode & 0o011:
        return  # nobody else passes through it
    for path in (found.folder, *(path for path, _ in _owners(found.folder))):
        if not path.is_symlink() and _mode(path) & 0o022:
            raise UsageError(
                f"{path} can be changed by other users of this machine.",
                why="who can change what is in force in a kit can widen it",
                fix=f"chmod -R go-w {found.folder}",
            )


def _owners(kit: Path) -> list[tuple[Path, int]]:
    """Return whose each entry is of which NVFlare reads what is in force; raises UsageError."""
    try:
        places = [place for name in ("startup", "local") if (place := kit / name).exists()]
        paths = [*places, *(one for place in places for one in sorted(place.iterdir()))]
        targets = [path.resolve() for path in paths if path.is_symlink() and path.exists()]
        return [(path, path.lstat().st_uid) for path in (*paths, *targets)]
    except OSError as error:
        raise UsageError(f"{kit} cannot be listed ({error.strerror}).") from error


def in_force(subject: Subject) -> str:
    """What a job may do here, and who reaches the engine's port, is as `site harden` makes it."""
    found = subject.kit
    wrong = found.lacking()
    if not found.mutual:
        whom = f"{_whom(found)} and this site" if found.relay else "server and sites"
        wrong.insert(0, f"{whom} do not show each other certificates (mtls)")
    if wrong:
        anew = found.relay and not found.mutual
        raise UsageError(
            f"The kit is wider than it may be: {'; '.join(wrong)}.",
            why=""
            if anew
            else "it was not narrowed yet, or made anew since: nvflare deploy "
            "prepare, too, takes local/resources.json away",
            fix="have the kits made anew with connection_security: mtls at the relay's "
            "listening_host"
            if anew
            else "secure-fgl site harden PARTY --kit KIT",
        )
    return (
        "our two classes alone, no code in jobs, no streams of logs, nothing in clear between its "
        f"own processes; all the same, {OTHERS_READ}"
    )


def sending(subject: Subject) -> str:
    """The kit says how NVFlare sends, so that its processes do not grow with each message."""
    found = subject.kit.sending()
    if missing := [name for name in COMMUNICATION if type(found.get(name)) not in (int, float)]:
        raise UsageError(
            f"The kit does not say by a number how NVFlare sends: {', '.join(missing)}.",
            why="it was narrowed by an earlier version; NVFlare's own settings keep a megabyte for "
            "each message, and a thread a minute for each answer",
            fix="secure-fgl site harden PARTY --kit KIT, then start NVFlare anew",
        )
    piece, window = (found[f"streaming_{name}"] for name in ("chunk_size", "window_size"))
    return f"pieces of {piece:,} bytes, {window:,} bytes under way at most"


def certificate(subject: Subject) -> str:
    """The kit's certificate is of its key and its root, and valid today."""
    found = subject.kit
    mine, root = found.certificate(), found.certificate("ssl_root_cert")
    path = found.startup("ssl_private_key")
    try:
        key = load_pem_private_key(content(path, _KEY_LIMIT) or b"", None).public_key()
        mine.verify_directly_issued_by(root)
    except OSError as error:
        raise UsageError(f"{path} cannot be read ({error.strerror}).") from error
    except (InvalidSignature, TypeError, ValueError):
        raise UsageError(
            "The kit's certificate is not signed by its root, or its key cannot be read.",
            why="files of two kits are mixed",
            fix=_ANEW,
        ) from None
    if _raw(key) != _raw(mine.public_key()):
        raise UsageError(
            f"{path} is the key of another certificate.", why="files of two kits are mixed",
            fix=_ANEW,
        )  # fmt: skip
    return " and ".join(_days(c, name, subject) for c, name in ((mine, "its own"), (root, "root")))


def server_name(subject: Subject) -> str:
    """The name of the server, or of the relay before it, leads to an address."""
    host, port = _dialled(subject)
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except OSError as error:
        raise UsageError(
            f"The {_whom(subject.kit)}'s name {host} leads to no address.",
            why=str(error.strerror or "it is not known here"),
            fix="ask the network's people for a name, or put it into the hosts file",
        ) from error
    return f"{host} is {', '.join(sorted({str(entry[4][0]) for entry in found})[:3])}"


def server_answers(subject: Subject) -> str:
    """Whom this site dials listens, and its certificate and this site's are of one root."""
    host, port = _dialled(subject)
    try:
        with socket.create_connection((host, port), _SECONDS) as raw:
            presented = _shaken(subject.kit, raw, host)
    except ssl.SSLError as error:
        raise UsageError(
            f"{host}:{port} listens, and is not taken for the {_whom(subject.kit)}, or does not "
            "take this site.",
            why=f"TLS says {error.reason or 'no'}",
            fix="see that both kits are of one root, and that nothing in between breaks TLS up",
        ) from error
    except OSError as error:
        raise UsageError(
            f"Nobody is reached at {host}:{port}.",
            why=str(error.strerror or "it took too long"),
            fix=f"start the {_whom(subject.kit)}, and let the firewall pass this port outwards",
        ) from error
    told = f"{host}:{port} listens; {_days(presented, 'its certificate', subject)}"
    return f"{told}; from there on the relay dials" if subject.kit.relay else told


def _dialled(subject: Subject) -> tuple[str, int]:
    if subject.kit.server:
        raise NotChecked("this is the server; ask at a site")
    return subject.kit.dialled


def _whom(kit: KitFiles) -> str:
    """Return what a message calls whom a kit dials."""
    return f"relay {kit.relay}" if kit.relay else "server"


def _shaken(kit: KitFiles, raw: socket.socket, host: str) -> x509.Certificate:
    """Shake hands as NVFlare does, and return the certificate of who is dialled."""
    context = ssl.create_default_context(cafile=str(kit.startup("ssl_root_cert")))
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT  # NVFlare's roots do not say what keys are for
    context.load_cert_chain(kit.startup("ssl_cert"), kit.startup("ssl_private_key"))
    context.set_alpn_protocols(["h2"])
    with context.wrap_socket(raw, server_hostname=host) as tls:
        tls.settimeout(1.0)
        with contextlib.suppress(TimeoutError):
            tls.recv(1)  # a server that does not take our certificate says so only now
        return x509.load_der_x509_certificate(tls.getpeercert(binary_form=True) or b"")


def _days(found: x509.Certificate, whose: str, subject: Subject) -> str:
    """Return how long a certificate is valid yet; raises UsageError if it is not."""
    begin, end = found.not_valid_before_utc, found.not_valid_after_utc
    if not begin <= subject.now <= end:
        raise UsageError(
            f"A certificate ({whose}) is valid from {begin:%Y-%m-%d %H:%M} to "
            f"{end:%Y-%m-%d %H:%M} UTC, and it is {subject.now:%Y-%m-%d %H:%M}.",
            why="it ran out, or this machine's clock is wrong",
            fix=f"look at the clock; {_ANEW}",
        )
    left = end - subject.now
    return f"{whose} for {left.days} days" + (" only: renew it" if left < _SOON else "")


def _raw(key: PublicKeyTypes) -> bytes:
    return key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)


def _mode(path: Path) -> int:
    try:
        return path.stat().st_mode
    except OSError as error:
        raise UsageError(f"{path} cannot be read ({error.strerror}).") from error

"""``identity.json``: the seed of a party's keys, in clear or locked under a passphrase.

::

    {"name", "role", "seed"}                 in clear; the file is closed to others
    {"name", "role", "version", "locked"}    the same seed under a passphrase

Name and role stand in clear, and the lock is bound to both: a seed that is put under another name
does not open.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from crypto.errors import InvalidSeal
from crypto.passphrases import lock_under, unlock_under
from crypto.samplers import entropy
from crypto.signing.canonical import canonical
from protocols.versions import IDENTITY
from protocols.wire.roles import Role
from protocols.wire.roster import Identity, Party
from secure_fgl.charters.passphrase import Passphrase, of_this_site
from secure_fgl.errors import UsageError
from secure_fgl.isolation.kernel import close_memory
from secure_fgl.store.files import content, open_plain

__all__ = [
    "IDENTITY_FILE",
    "check_closed",
    "is_locked",
    "load_identity",
    "name_and_role",
    "new_identity",
    "next_identity",
    "write_secret",
]

IDENTITY_FILE = "identity.json"
_SEED_BYTES = 32
_LIMIT = 4096  # bytes; ours has about 250
_CLEAR = {"name", "role", "seed"}
_LOCKED = {"name", "role", "version", "locked"}


def new_identity(
    folder: str | Path, name: str, role: Role, passphrase: Passphrase | None = None
) -> Party:
    """Make a party's keys, keep them in `folder`, and return what it announces to the others.

    Args:
        folder: of the party.
        name: of the party.
        role: of the party.
        passphrase: locks the file; None: it is only closed to other users.

    Raises:
        UsageError: the folder holds an identity already, or cannot be written.
    """
    close_memory()
    seed = entropy(_SEED_BYTES)
    text = json.dumps(_document(name, role, seed, passphrase))
    write_secret(Path(folder) / IDENTITY_FILE, text, f"The identity of {name}")
    return Identity.from_seed(name, role, seed).party


def next_identity(
    folder: Path, last: Identity, passphrase: Passphrase | None
) -> tuple[Identity, bytes]:
    """Return a new identity of the same name and role, and the file that would hold it."""
    name, role, seed = last.party.name, last.party.role, entropy(_SEED_BYTES)
    if passphrase is None and is_locked(folder):
        raise UsageError(
            f"{folder / IDENTITY_FILE} is locked, and the next one would not be.",
            fix="--passphrase, or --passphrase-file FILE",
        )
    data = json.dumps(_document(name, role, seed, passphrase)).encode()
    return Identity.from_seed(name, role, seed), data


def _document(
    name: str, role: Role, seed: bytes, passphrase: Passphrase | None
) -> dict[str, object]:
    if passphrase is None:
        return {"name": name, "role": str(role), "seed": seed.hex()}
    locked = lock_under(passphrase.reveal(), _bound(name, role), seed)
    return {"name": name, "role": str(role), "version": IDENTITY.version, "locked": locked.hex()}


def load_identity(folder: Path) -> Identity:
    """Read a party's keys; a locked file asks for its passphrase, see `passphrase.of_this_site`.

    Before that this process closes its memory to its user's other processes, whatever its role.

    Raises:
        UsageError: the file is not ours, or open to others, or its passphrase is not at hand or
            another one.
        OtherVersion: it is locked in the way of another program.
    """
    path = folder / IDENTITY_FILE
    close_memory()
    document, name, role = _read(folder)
    check_closed(path)
    try:
        if set(document) == _CLEAR:
            return Identity.from_seed(name, role, _seed(document["seed"]))
        locked = bytes.fromhex(document["locked"])
        passphrase = of_this_site(str(path)).reveal()
        return Identity.from_seed(name, role, unlock_under(passphrase, _bound(name, role), locked))
    except InvalidSeal:
        raise UsageError(
            f"{path} does not open.",
            why="this is not its passphrase, or the file was changed",
            fix="try again; what is lost for good is made anew with site new, and a new charter",
        ) from None
    except (TypeError, ValueError):
        raise _not_ours(path) from None  # without its cause: causes quote what they could not read


def name_and_role(folder: Path) -> tuple[str, Role]:
    """Return whose folder it is, without opening its keys; raises UsageError, OtherVersion."""
    _, name, role = _read(folder)
    return name, role


def is_locked(folder: Path) -> bool:
    """Tell whether a party's keys are under a passphrase; raises UsageError, OtherVersion."""
    document, _, _ = _read(folder)
    return set(document) == _LOCKED


def _read(folder: Path) -> tuple[dict[str, Any], str, Role]:
    path = folder / IDENTITY_FILE
    try:
        data = content(path, _LIMIT)
        document = json.loads(data) if data is not None else None
        if not isinstance(document, dict):
            raise ValueError
        if "version" in document and not IDENTITY.check(document["version"]):
            raise ValueError
        if set(document) not in (_CLEAR, _LOCKED):
            raise ValueError
        return document, str(document["name"]), Role(document["role"])
    except OSError as error:
        raise UsageError(f"{path} cannot be read ({error.strerror}).") from error
    except (TypeError, ValueError):
        raise _not_ours(path) from None


def _not_ours(path: Path) -> UsageError:
    return UsageError(f"{path} is not an identity of ours.")


def _seed(text: Any) -> bytes:
    seed = bytes.fromhex(text)
    if len(seed) != _SEED_BYTES:
        raise ValueError
    return seed


def _bound(name: str, role: Role) -> bytes:
    return canonical(["identity", IDENTITY.version, name, str(role)])


def write_secret(path: Path, text: str, what: str) -> None:
    """Write a new file that only its owner reads, durably; raises UsageError."""
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        flags = os.O_CREAT | os.O_EXCL | os.O_WRONLY
        with os.fdopen(open_plain(path, flags), "w") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        raise UsageError(
            f"{what} cannot be written ({error.strerror}).",
            why="the folder holds one already, or is not writable",
            fix="give every party a new folder of its own",
        ) from error


def check_closed(path: Path) -> None:
    """Raise UsageError if other users of this machine can read a secret file."""
    if path.stat().st_mode & 0o077:
        raise UsageError(
            f"{path} can be read by other users of this machine.",
            why="it holds a secret key",
            fix=f"chmod 600 {path}, and make a new one if others had access",
        )

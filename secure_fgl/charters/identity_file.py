"""Where the passphrase of a party's identity comes from.

In this order: the file that ``SECURE_FGL_PASSPHRASE_FILE`` names; the file
``secure-fgl-passphrase`` in the directory of systemd's credentials
(``LoadCredentialEncrypted=secure-fgl-passphrase``); a question on the terminal. It is never an
argument or a variable itself: other users of the machine see the first, and the second is handed on
to every child. Before it is read this process closes its memory to its user's other processes.
"""

from __future__ import annotations

import getpass
import json
import os
import sys
import unicodedata
from pathlib import Path
from typing import Any

from crypto.aead import lock_under, unlock_under
from crypto.errors import InvalidSeal
from crypto.samplers import Mute, entropy
from crypto.signing import canonical
from protocols.versions import IDENTITY
from protocols.wire.roles import Role
from protocols.wire.roster import Identity, Party
from secure_fgl.errors import UsageError
from secure_fgl.isolation.kernel import close_memory
from secure_fgl.store.files import content, open_plain

FILE_VARIABLE = "SECURE_FGL_PASSPHRASE_FILE"
"""Environment variable that names a file with the passphrase, and nothing else in it."""
CREDENTIAL = "secure-fgl-passphrase"
"""Name of the passphrase among systemd's credentials of a unit."""
_CREDENTIALS = "CREDENTIALS_DIRECTORY"
_SHORTEST, _LIMIT = 12, 1024


class Passphrase(Mute):
    """One passphrase; mute when printed.

    Args:
        text: of 12 characters or more; letters that are spelt in two ways count as one.

    Raises:
        UsageError: it is shorter, or of several lines.
    """

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        if len(text) < _SHORTEST or not text.isprintable():
            raise UsageError(
                f"A passphrase has {_SHORTEST} characters or more, on one line.",
                why="who has the file guesses as often as machines can",
                fix="take six random words",
            )
        self._text = unicodedata.normalize("NFC", text)

    def reveal(self) -> bytes:
        """Return its bytes, for the function that makes a key of them."""
        return self._text.encode()


def from_file(path: Path, *, closed: bool = True) -> Passphrase:
    """Read a passphrase, without the line break after it.

    Args:
        path: of the file.
        closed: refuse a file that other users of this machine can read.

    Raises:
        UsageError: it cannot be read, is open to others, or holds no passphrase.
    """
    close_memory()
    try:
        data = content(path, _LIMIT)
        open_to_others = closed and path.stat().st_mode & 0o077
    except OSError as error:
        raise UsageError(f"The passphrase {path} cannot be read ({error.strerror}).") from error
    if open_to_others:
        raise UsageError(
            f"{path} can be read by other users of this machine.",
            why="it holds a passphrase",
            fix=f"chmod 600 {path}, and take another passphrase if others had access",
        )
    try:
        text = (data or b"").decode()
    except UnicodeDecodeError:
        text = ""
    return Passphrase(text.removesuffix("\n").removesuffix("\r"))


def of_this_site(what: str) -> Passphrase:
    """Return the passphrase of this site, from where it is kept; see the head of this file.

    Args:
        what: is locked under it, for the question on a terminal.

    Raises:
        UsageError: it is kept nowhere and there is no terminal, or what is there is none.
    """
    if named := os.environ.get(FILE_VARIABLE):
        return from_file(Path(named))
    credentials = os.environ.get(_CREDENTIALS)
    if credentials and (path := Path(credentials) / CREDENTIAL).is_file():
        return from_file(path, closed=False)  # systemd closes the directory, and sets group bits
    if sys.stdin.isatty():
        close_memory()
        return Passphrase(getpass.getpass(f"Passphrase of {what}: "))
    raise UsageError(
        f"{what} is locked, and its passphrase is not at hand.",
        why="there is no terminal to ask on",
        fix=f"name a file in {FILE_VARIABLE}, or let systemd load the credential {CREDENTIAL}",
    )


def asked_twice(what: str) -> Passphrase:
    """Ask for a new passphrase on the terminal.

    Raises:
        UsageError: there is no terminal, it was typed differently the second time, or is none.
    """
    if not sys.stdin.isatty():
        raise UsageError("There is no terminal to ask on.", fix="--passphrase-file FILE")
    close_memory()
    first = Passphrase(getpass.getpass(f"New passphrase of {what}: "))
    if getpass.getpass("Again: ") != first.reveal().decode():
        raise UsageError("The passphrase was typed differently the second time.", fix="try again")
    return first


# --- ``identity.json``: the seed of a party's keys, in clear or locked under a passphrase ---
#
# ::
#
#     {"name", "role", "seed"}                 in clear; the file is closed to others
#     {"name", "role", "version", "locked"}    the same seed under a passphrase
#
# Name and role stand in clear, and the lock is bound to both: a seed that is put under another name
# does not open.

IDENTITY_FILE = "identity.json"
_SEED_BYTES = 32
_LIMIT_IDENTITY_FILE = 4096  # bytes; ours has about 250
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
        data = content(path, _LIMIT_IDENTITY_FILE)
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

"""Where the passphrase of a party's identity comes from.

In this order: the file that ``SECURE_FGL_PASSPHRASE_FILE`` names; the file
``secure-fgl-passphrase`` in the directory of systemd's credentials
(``LoadCredentialEncrypted=secure-fgl-passphrase``); a question on the terminal. It is never an
argument or a variable itself: other users of the machine see the first, and the second is handed on
to every child. Before it is read this process closes its memory to its user's other processes.
"""

from __future__ import annotations

import getpass
import os
import sys
import unicodedata
from pathlib import Path

from crypto.handles import Mute
from secure_fgl.errors import UsageError
from secure_fgl.isolation.kernel import close_memory
from secure_fgl.store.files import content

__all__ = ["CREDENTIAL", "FILE_VARIABLE", "Passphrase", "asked_twice", "from_file", "of_this_site"]

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

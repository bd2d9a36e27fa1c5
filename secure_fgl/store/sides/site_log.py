"""``PARTY/site.log`` (0600): why something went wrong at a site, for the site's own people.

The others hear one of two codes, and the engine's logs, which an administrator may see, hold the
error's class. Here stands what a command would print: our own sentences, which hold no value of a
record and no key (`protocols.errors`), and of any other error its class and place alone.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from pathlib import Path

from secure_fgl.reasons import explain
from secure_fgl.run.clock import clock
from secure_fgl.store.files import open_plain

__all__ = ["NAME", "note"]

NAME = "site.log"
_MOST = 1 << 20  # bytes; then it is put aside as site.log.1, so that no peer fills the disk
_LONGEST = 500  # characters of a line


def note(
    party: str | Path,
    what: str,
    error: BaseException | None = None,
    *,
    now: Callable[[], str] = clock,
) -> None:
    """Append why something went wrong; a log that cannot be written stops nothing.

    Args:
        party: the party's folder.
        what: happened, in a sentence of ours without a full stop.
        error: the reason, if one is known.
        now: tells the time.
    """
    told, head = ([] if error is None else explain(error, again="")), f"{now()} {what}"
    lines = [_plain(line) for text in told for line in text.splitlines()]
    kind = "" if error is None else f" ({type(error).__name__})"
    text = "\n  ".join([f"{head}{kind}", *lines]) + "\n"
    with contextlib.suppress(OSError):
        _append(Path(party) / NAME, text.encode("utf-8", "replace"))


def _append(path: Path, data: bytes) -> None:
    with contextlib.suppress(FileNotFoundError):
        if path.stat().st_size > _MOST:
            path.replace(path.with_name(f"{NAME}.1"))
    file = open_plain(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    try:
        os.fchmod(file, 0o600)
        os.write(file, data)
    finally:
        os.close(file)


def _plain(line: str) -> str:
    return "".join(c if c.isprintable() else "?" for c in line)[:_LONGEST]

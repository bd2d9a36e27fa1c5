"""Who reaches an engine's process, and what that gives them.

NVFlare's process at a site takes commands on its channel for administrators, and looks at rights
only where the message itself asks for that. So whoever reaches the process can read what its user
can read, and stop it, whatever its kit forbids: any enrolled site and the server's operator through
the server; and, where it listens in clear for the processes of its own jobs, every process of this
machine. The first cannot be closed by a setting, so a party runs under another user (ADR 0087).
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Any

from secure_fgl.errors import UsageError

__all__ = ["CLEAR_READS", "LISTENER", "OTHERS_READ", "check_listener", "is_mutual"]

OTHERS_READ = "other sites and the server's operator can read what this user can read"
"""What holds for the user of every process of NVFlare."""
CLEAR_READS = (
    "the engine listens in clear for the processes of its jobs, so every user and container that "
    "reaches 127.0.0.1 here can read what the engine's user can read"
)
_MUTUAL, _FLAG = "mtls", "--parent_conn_sec"
LISTENER: Mapping[str, Any] = {
    "internal": {
        "scheme": "tcp",
        "resources": {"host": "localhost", "connection_security": _MUTUAL},
    }
}
"""What a kit says of that listener, in the file of how it sends; NVFlare's default is in clear."""


def is_mutual(sending: Mapping[str, Any]) -> bool:
    """Tell whether a kit lets nobody reach its listeners without a certificate of its root."""
    internal = sending.get("internal")
    resources = internal.get("resources") if isinstance(internal, dict) else None
    told = resources.get("connection_security") if isinstance(resources, dict) else None
    return told == _MUTUAL and not sending.get("allow_adhoc_conns")


def check_listener(arguments: Sequence[str] | None = None) -> None:
    """See, in a job's process, that its engine does not listen in clear.

    Args:
        arguments: of the process; by default of this one.

    Raises:
        UsageError: it does, or takes who shows no certificate.
    """
    given = list(sys.argv if arguments is None else arguments)
    if _FLAG in given and given[given.index(_FLAG) + 1 :][:1] != [_MUTUAL]:
        raise UsageError(
            f"This job is refused: {CLEAR_READS}.",
            why="the kit was not narrowed, or was made anew since",
            fix="secure-fgl site harden PARTY --kit KIT, then start NVFlare anew",
        )

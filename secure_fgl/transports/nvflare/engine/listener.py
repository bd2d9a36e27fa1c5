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

__all__ = ["CLEAR_READS", "OTHERS_READ", "check_listener", "is_mutual", "mutual"]

OTHERS_READ = "other sites and the server's operator can read what this user can read"
"""What holds for the user of every process of NVFlare."""
CLEAR_READS = (
    "the engine listens in clear for the processes of its jobs, so every user and container that "
    "reaches 127.0.0.1 here can read what the engine's user can read"
)
_MUTUAL, _FLAG = "mtls", "--parent_conn_sec"
_SECURITY, _ADHOC = "connection_security", "allow_adhoc_conns"  # NVFlare's defaults: clear, no


def mutual(sending: Mapping[str, Any]) -> dict[str, Any]:
    """Return how a kit sends with listeners for who shows a certificate of its root alone.

    Where it listens stays as its operator, or NVFlare's launcher for containers, wrote that down.
    """
    internal, resources = _internal(sending)
    listener = {"scheme": "tcp", **internal, "resources": {**resources, _SECURITY: _MUTUAL}}
    kept = {name: value for name, value in sending.items() if name != _ADHOC}
    return {**kept, "internal": listener}


def _internal(sending: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return what a kit says of its inner listener, and of that what NVFlare calls resources."""
    told = sending.get("internal")
    internal = told if isinstance(told, dict) else {}
    resources = internal.get("resources")
    return internal, resources if isinstance(resources, dict) else {}


def is_mutual(sending: Mapping[str, Any]) -> bool:
    """Tell whether a kit lets nobody reach its listeners without a certificate of its root."""
    return _internal(sending)[1].get(_SECURITY) == _MUTUAL and not sending.get(_ADHOC)


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

"""Put in front of the sites' path by a test: keeps a copy of all that tasks and results carry.

Python imports this by its name before anything else runs. Of the engine only job processes are
tapped; all their bytes of either direction go through the two functions that are wrapped here.
Where a test asks for it, a party's session is tapped as well: every secret that it draws is noted.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

if any(module.endswith((".runner_process", ".worker_process")) for module in sys.orig_argv):
    from secure_fgl.transports.nvflare import wire

    _side = "server" if any(word.endswith(".runner_process") for word in sys.orig_argv) else "site"
    _file = Path(os.environ["SECURE_FGL_TEST_TAP"]) / f"{_side}-{os.getpid()}.bin"
    _pack, _unpack = wire.pack, wire.unpack

    def _keep(envelopes: list[bytes]) -> None:
        with _file.open("ab") as file:
            file.write(b"".join(envelopes))

    def pack(envelopes: Any, *more: Any) -> Any:
        _keep(list(envelopes))
        return _pack(envelopes, *more)

    def unpack(carried: Any) -> list[bytes]:
        found = _unpack(carried)
        _keep(found)
        return found

    wire.pack, wire.unpack = pack, unpack

_DRAWN = os.environ.get("SECURE_FGL_TEST_DRAWN")

if _DRAWN and any(module.endswith(".site.session") for module in sys.orig_argv):
    from crypto import samplers

    _entropy = samplers.entropy
    _noted = Path(_DRAWN) / f"{os.getpid()}.hex"

    def entropy(count: int) -> bytes:
        """Return what the operating system drew; shorter than a key are nonces, which travel."""
        drawn = _entropy(count)
        if count >= samplers.KEY_BYTES:
            with _noted.open("a") as file:
                file.write(f"{drawn.hex()}\n")
        return drawn

    samplers.entropy = entropy

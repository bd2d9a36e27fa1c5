"""Put in front of the sites' path by a test: keeps a copy of all that tasks and results carry.

Python imports this by its name before anything else runs. Only job processes are tapped; all their
bytes of either direction go through the two functions that are wrapped here.
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

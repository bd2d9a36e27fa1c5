"""The rows of `aggregation.py` by name. Run as a file, it is one row in a process of its own."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Literal

if __package__ in (None, ""):  # run as a file: the floors lie one folder up
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks._rows import Elsewhere, Row, Sample, play, serve, updates

BASE = "peer_nvflare"
"""The row against which ratios are taken."""


@dataclass(frozen=True)
class Kind:
    """One row.

    Attributes:
        name: in ``--rows`` and in the result.
        key: who can encrypt: everyone (``public``), only those who can also open (``symmetric``),
            or there is no encryption key (``none``).
        make: makes it for so many parameters and clients.
        script: its folder in `envs`, where it runs in an environment of its own instead.
    """

    name: str
    key: Literal["public", "symmetric", "none"]
    make: Callable[[int, int], Row] | None = None
    script: str = ""


def _nvflare(parameters: int, clients: int) -> Row:
    from benchmarks._peers import Ckks

    return Ckks([60, 40, 40], clients)


def _fedgraph(parameters: int, clients: int) -> Row:
    from benchmarks._peers import Ckks

    return Ckks([60, 40, 40, 60], clients, symmetric=False, fedgraph=True)


def _shared(parameters: int, clients: int) -> Row:
    from benchmarks._peers import SharedKey

    return SharedKey(parameters, clients)


def _masks(bits: int, parameters: int, clients: int) -> Row:
    from benchmarks._ours import Masks

    return Masks(parameters, clients, bits)


def _encrypted(bits: int, name: str, online: bool, parameters: int, clients: int) -> Row:
    from benchmarks._ours import Encrypted

    return Encrypted(parameters, clients, bits, name, online=online)


KINDS = {
    kind.name: kind
    for kind in (
        Kind(BASE, "symmetric", _nvflare),
        Kind("peer_fedgraph", "public", _fedgraph),
        Kind("shared_key_baseline", "symmetric", _shared),
        Kind("bfv", "public", partial(_encrypted, 16, "bfv-sealapi", False)),
        Kind("bfv12", "public", partial(_encrypted, 12, "bfv48-sealapi", False)),
        Kind("bfv_online", "public", partial(_encrypted, 16, "bfv-sealapi", True)),
        Kind("ckks", "public", partial(_encrypted, 16, "ckks-sealapi", False)),
        Kind("masks", "none", partial(_masks, 16)),
        Kind("masks12", "none", partial(_masks, 12)),
        Kind("flower_secagg_plus", "none", script="flower"),
        Kind("fed_mf_paillier", "symmetric", script="paillier"),
    )
}


class Local:
    """A row in this process; its peak memory is measured in another one, which plays one round."""

    def __init__(self, kind: Kind, parameters: int, clients: int) -> None:
        if kind.make is None:
            raise ValueError(f"{kind.name} runs in an environment of its own.")
        self._row = kind.make(parameters, clients)
        self._updates = updates(parameters, clients)
        command = [sys.executable, str(Path(__file__).resolve()), kind.name]
        probe = Elsewhere(command, parameters, clients)
        try:
            self.peak_mb = probe.play().peak_mb
        finally:
            probe.close()

    def play(self) -> Sample:
        """Play one round."""
        return play(self._row, *self._updates)

    def close(self) -> None:
        """Nothing is held."""


def main() -> int:
    """Serve the named row: NAME PARAMETERS CLIENTS (`_rows.serve`)."""
    name, parameters, clients = sys.argv[1:]
    make = KINDS[name].make
    return 2 if make is None else serve(make, int(parameters), int(clients))


if __name__ == "__main__":
    sys.exit(main())

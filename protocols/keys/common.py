"""The key that all clients of a run hold and nobody else: what checks of sums are made with.

In the first epoch every client draws a part and sends it to every other one, in the boxes in which
pair secrets travel; the key is derived from all of them. Later a client that holds the key sends
the key itself, so that one which was away learns it. It is taken as told by more clients than the
policy assumes to collude, who could tell another one.

A client can hand the key to the aggregator, which may then change totals unnoticed. Such a client
could as well send what shifts the total by as much: no protocol here proves what a client sends.
Clients that tell others different parts make totals fail their checks, which ends the run.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any, Final

from crypto.handles import Mute
from crypto.samplers import derive, entropy
from protocols.errors import BadEnvelope

_BYTES: Final = 32
_DRAWN, _KEY = b"\0", b"\1"
PART_BYTES: Final = 1 + _BYTES
"""Of what one client sends each other one."""


class CommonKey(Mute):
    """What one client holds of the key.

    Args:
        drawn: this client's own part.
        key: the key; empty until it is agreed on.
    """

    def __init__(self, drawn: bytes = b"", key: bytes = b"") -> None:
        self._drawn, self.key = drawn or entropy(_BYTES), key

    def kept(self) -> tuple[bytes, bytes]:
        """Return what this is made of again, for a locked state."""
        return self._drawn, self.key

    @property
    def part(self) -> bytes:
        """What this client sends every other one, `PART_BYTES` long."""
        return _KEY + self.key if self.key else _DRAWN + self._drawn

    def agree(self, name: str, run: str, parts: Mapping[str, bytes], colluders: int) -> None:
        """Take the key from what all others sent; a key that is here already stays.

        Args:
            name: of this client.
            run: the run's name.
            parts: by client, what it sent.
            colluders: how many clients may work together, by the policy.

        Raises:
            BadEnvelope: they do not tell one key.
        """
        if self.key:
            return
        told = Counter(part[1:] for part in parts.values() if part[:1] == _KEY)
        if told:
            known = [key for key, clients in told.items() if clients > colluders]
            if len(known) != 1:
                raise BadEnvelope(
                    "The others do not tell one key of checks.",
                    why="a client tells a false one, or too few were there in an earlier epoch",
                    fix="start the run again when all clients are there",
                )
            self.key = known[0]
            return
        drawn: dict[str, Any] = {peer: part[1:] for peer, part in parts.items()}
        drawn[name] = self._drawn
        joined = b"".join(drawn[peer] for peer in sorted(drawn))
        self.key = derive(joined, "common", run, *sorted(drawn))

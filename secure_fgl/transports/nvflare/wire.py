"""How a list of envelopes rides in a task or its result: bytes in one field, nothing beside it.

An error is a code of NVFlare's closed list; no text of an exception ever travels.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from nvflare.apis.fl_constant import ReturnCode
from nvflare.apis.shareable import Shareable, make_reply

from protocols.errors import BadEnvelope

TASK = "secure_fgl.envelopes"
"""The task that carries envelopes."""
END = "secure_fgl.end"
"""The task that says that the run is over, in the aggregator's signed words (`Charter.end`): a site
gives up its kept state then, and nobody else, the engine's operator included, can have it do so."""
BUDGET = "secure_fgl.budget"
"""The task that asks a client for the heads of its budgets, with the same signed words: the run is
over. They come back cosigned behind the words of :data:`END` (O20)."""

_FIELD = "envelopes"
_MOST = 64  # envelopes in one task; a protocol's step sends one or two to a party


def pack(envelopes: Sequence[bytes]) -> Shareable:
    """Return the envelopes as what a task carries."""
    found = Shareable()
    found[_FIELD] = [bytes(data) for data in envelopes]
    return found


def unpack(carried: Any) -> list[bytes]:
    """Return the envelopes that a task or result carries; raises BadEnvelope for anything else."""
    found = carried.get(_FIELD) if isinstance(carried, Shareable) else None
    if not isinstance(found, list) or len(found) > _MOST:
        raise BadEnvelope("A task holds no list of envelopes.")
    if not all(isinstance(data, bytes) for data in found):
        raise BadEnvelope("A task holds something else than bytes.")
    return found


def failed(*, readable: bool) -> Shareable:
    """Return the only two errors a site speaks of: could not be read, could not be answered."""
    return make_reply(ReturnCode.EXECUTION_EXCEPTION if readable else ReturnCode.BAD_TASK_DATA)

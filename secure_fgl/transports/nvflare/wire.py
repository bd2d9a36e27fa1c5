"""How a list of envelopes rides in a task or its result: bytes in one field, nothing beside it.

An error is a code of NVFlare's closed list; no text of an exception ever travels.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from nvflare.apis.fl_constant import ReturnCode
from nvflare.apis.shareable import Shareable, make_reply

from protocols.errors import BadEnvelope
from secure_fgl.transports.nvflare.site.codes import BUDGET, END, TASK, Code, Heard

__all__ = ["BUDGET", "END", "TASK", "heard", "pack", "patience", "say", "unpack"]

_FIELD, _SECONDS = "envelopes", "seconds"
_CODES = {
    Code.UNREADABLE: ReturnCode.BAD_TASK_DATA,
    Code.FAILED: ReturnCode.EXECUTION_EXCEPTION,
    Code.BUSY: ReturnCode.SERVER_NOT_READY,
    Code.AWAY: ReturnCode.SERVICE_UNAVAILABLE,
    Code.LEFT: ReturnCode.EARLY_TERMINATION,
}
"""What NVFlare calls our codes; its list is a closed one."""
_LONGEST = 7 * 86400.0  # seconds
_MOST = 64  # envelopes in one task; a protocol's step sends one or two to a party


def pack(envelopes: Sequence[bytes], seconds: float | None = None) -> Shareable:
    """Return the envelopes as what a task carries, and for how long its answer is awaited."""
    found = Shareable()
    found[_FIELD] = [bytes(data) for data in envelopes]
    if seconds is not None:
        found[_SECONDS] = float(seconds)
    return found


def patience(carried: Any) -> float:
    """Return for how many seconds a task's answer is awaited; a week if it does not say."""
    found = carried.get(_SECONDS) if isinstance(carried, Shareable) else None
    return min(max(found, 0.0), _LONGEST) if isinstance(found, float) else _LONGEST


def unpack(carried: Any) -> list[bytes]:
    """Return the envelopes that a task or result carries; raises BadEnvelope for anything else."""
    found = carried.get(_FIELD) if isinstance(carried, Shareable) else None
    if not isinstance(found, list) or len(found) > _MOST:
        raise BadEnvelope("A task holds no list of envelopes.")
    if not all(isinstance(data, bytes) for data in found):
        raise BadEnvelope("A task holds something else than bytes.")
    return found


def say(code: Code) -> Shareable:
    """Return what a site answers that has no answer: a code of NVFlare's closed list."""
    return make_reply(_CODES.get(code, ReturnCode.EXECUTION_EXCEPTION))


def heard(result: Any) -> Heard:
    """Return what a site's result says; what is neither a code of ours nor bytes is a failure."""
    if isinstance(result, Shareable) and _FIELD not in result:
        said = result.get_return_code(ReturnCode.EXECUTION_EXCEPTION)
        return Heard(next((c for c, name in _CODES.items() if name == said), Code.FAILED))
    try:
        return Heard(Code.DONE, unpack(result))
    except BadEnvelope:
        return Heard(Code.FAILED)

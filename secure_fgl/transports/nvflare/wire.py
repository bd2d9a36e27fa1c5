"""How a list of envelopes rides in a request or its reply: bytes in one field.

Beside it a request has a name, and for how long its answer is awaited and may be held back. An
error is a code of NVFlare's closed list; no text of an exception ever travels.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import Any

from nvflare.apis.fl_constant import ReturnCode
from nvflare.apis.shareable import ReservedHeaderKey, Shareable, make_reply
from nvflare.fuel.f3.cellnet.defs import ReturnCode as CellReturnCode

from protocols.errors import BadEnvelope
from secure_fgl.transports.nvflare.site.codes import END, TASK, Code, Heard

__all__ = [
    "END",
    "TASK",
    "Word",
    "heard",
    "hold",
    "pack",
    "patience",
    "request",
    "say",
    "tell",
    "turn",
    "unpack",
    "word",
]

_FIELD, _SECONDS, _HOLD, _WORD = "envelopes", "seconds", "hold", "word"
_CODES = {
    Code.UNREADABLE: ReturnCode.BAD_TASK_DATA,
    Code.FAILED: ReturnCode.EXECUTION_EXCEPTION,
    Code.BUSY: ReturnCode.SERVER_NOT_READY,
    Code.AWAY: ReturnCode.SERVICE_UNAVAILABLE,
    Code.LEFT: ReturnCode.EARLY_TERMINATION,
}
"""What NVFlare calls our codes; its list is a closed one."""
_NOT_HEARD = {
    ReturnCode.TIMEOUT,
    ReturnCode.COMMUNICATION_ERROR,
    ReturnCode.ERROR,
    ReturnCode.TOPIC_UNKNOWN,
    ReturnCode.TASK_ABORTED,
    CellReturnCode.ABORT_RUN,
}
"""What the engine says where a request did not reach a site's relay, its reply got lost, or the job
ends there: that is no word of the party, which is asked again in the next job."""
_LONGEST = 7 * 86400.0  # seconds
_NAME = 64  # characters
_MOST = 64  # envelopes in one task; a protocol's step sends one or two to a party


class Word(StrEnum):
    """What a relay says of a request that has no answer yet; between the two relays alone."""

    QUEUED = "queued"
    """The relay has it; the party did not take it yet."""
    TAKEN = "taken"
    """The party took it, and works on it."""
    UNKNOWN = "unknown"
    """The relay was asked for the answer to what it never had."""
    LOST = "lost"
    """Nothing came of the relay. No relay says this."""


def request(name: str, envelopes: Sequence[bytes] | None, *, seconds: float, hold: float) -> Any:
    """Return what is pushed to a site.

    Args:
        name: of the request, the same however often it is sent.
        envelopes: None asks for the answer to what was sent under this name.
        seconds: for how long an answer is awaited.
        hold: how many seconds the site may take before it says that it has no answer yet.
    """
    found = pack(envelopes or (), seconds)
    if envelopes is None:
        del found[_FIELD]
    found[_HOLD] = float(hold)
    found.set_header(ReservedHeaderKey.TASK_ID, name)
    return found


def turn(carried: Any) -> tuple[str, bool]:
    """Return a request's name, and whether it only asks; raises BadEnvelope where it has none."""
    name = carried.get_header(ReservedHeaderKey.TASK_ID) if isinstance(carried, Shareable) else None
    if not isinstance(name, str) or not 0 < len(name) <= _NAME:
        raise BadEnvelope("A request has no name.")
    return name, _FIELD not in carried


def hold(carried: Any) -> float:
    """Return how many seconds a reply may be held back; a week if the request does not say."""
    return _seconds(carried, _HOLD)


def tell(said: Word) -> Shareable:
    """Return the reply of a relay that has no answer yet."""
    found = Shareable()
    found[_WORD] = str(said)
    return found


def word(reply: Any) -> Word | None:
    """Return what a relay says that has no answer yet; None for an answer, or a site's code."""
    if not isinstance(reply, Shareable) or reply.get_return_code() in _NOT_HEARD:
        return Word.LOST
    said = reply.get(_WORD)
    return next((one for one in Word if one == said and one is not Word.LOST), None)


def pack(envelopes: Sequence[bytes], seconds: float | None = None) -> Shareable:
    """Return the envelopes as what a task carries, and for how long its answer is awaited."""
    found = Shareable()
    found[_FIELD] = [bytes(data) for data in envelopes]
    if seconds is not None:
        found[_SECONDS] = float(seconds)
    return found


def patience(carried: Any) -> float:
    """Return for how many seconds a task's answer is awaited; a week if it does not say."""
    return _seconds(carried, _SECONDS)


def _seconds(carried: Any, field: str) -> float:
    found = carried.get(field) if isinstance(carried, Shareable) else None
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

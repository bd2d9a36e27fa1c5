"""Notes what a party's own process says, opens and sends, for `benchmarks/soak.py`.

Python imports this by its name before anything else. It is put in front of the path of the soak's
parties alone, and only the process of a session is tapped. What a client says is noted before any
guard, so the notes hold secrets: they are a test's.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

if {"secure_fgl.sites.session", "secure_fgl.sites.start"} & {*sys.orig_argv}:
    import numpy as np

    import secure_fgl  # noqa: F401 - it looks whose the floors are, first
    from protocols.disclosures.names import Disclosure
    from protocols.disclosures.sum.view import Summands
    from protocols.wire.envelope import Envelope, commitment
    from protocols.wire.gateway import Gateway
    from secure_fgl.transports.broker import channel
    from secure_fgl.transports.broker.messages import decode

    _folder = Path(os.environ["SECURE_FGL_SOAK_TAP"])
    _release, _views, _send = Gateway.release, Summands.views, channel.send

    def _note(what: str, **facts: Any) -> None:
        file_of_mine = (
            _folder / f"{os.getpid()}.jsonl"
        )  # a session may be forked off its supervisor
        with file_of_mine.open("a", encoding="utf-8") as file:
            file.write(json.dumps({"what": what, **facts}) + "\n")

    def _fields(message: Any, dims: Any) -> dict[str, Any]:
        found = {}
        for place in message.fields:
            value = np.asarray(getattr(message, place.name))
            scale = dims[place.scale] if place.scale else 1
            found[place.name] = [value.dtype.kind, float(scale), value.ravel().tolist()]
        return found

    def _noting_release(self: Any, id: str, messages: Any, to: str, where: Any, *more: Any) -> Any:
        envelope = _release(self, id, messages, to, where, *more)
        name = self._context.me.party.name
        for one in messages:
            if one.disclosure is Disclosure.SUM:
                dims = self._context.dims(self._context.plan.item(id))
                at = [id, where.round, where.exchange, type(one).__name__]
                _note("said", party=name, at=at, fields=_fields(one, dims))
        return envelope

    def _noting_views(self: Any) -> Any:
        made = _views(self)
        for kind, view in made.items():
            dims = self._context.dims(self.item)
            at = [self.item.id, self.where.round, self.where.exchange, kind.__name__]
            total = _fields(view.read("total"), dims)
            _note("opened", survivors=list(self.survivors), at=at, fields=total)
        return made

    def _noting_send(connection: Any, message: Any, **more: Any) -> None:
        for data in decode(message)[1]:
            try:
                _note("sent", commitment=commitment(Envelope.decode(data)))
            except Exception:  # a note of the charter's, which is no envelope
                _note("other", size=len(data))
        _send(connection, message, **more)

    Gateway.release, Summands.views, channel.send = (_noting_release, _noting_views, _noting_send)

"""Answers by a file that was run anew, from memory that was written down and read again.

A client's process may be another one in every round: it was killed, or answers are isolated. So all
that one answer leaves for the next lies in `site.memory`, in values that kept state can hold. Here
every answer is computed by a module that was run just now, and messages and memory go through the
codec of isolated answers. What a file remembers elsewhere (in a global, in a function's closure) is
gone then, and so is what a client's side would hand to the aggregator's behind the plan's back.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from algorithms.tasks import Site
from protocols.forms import Exchange, Form
from protocols.messages import Message
from protocols.wire.control import CONTROL
from secure_fgl.checking.probe import Probe, run_again, several
from secure_fgl.federation import Federation
from secure_fgl.isolation.values import PlainCodec, messages, said

__all__ = ["anew"]


def anew(probe: Probe, form: Form[Any], exchange: Exchange) -> Exchange:
    """Return an exchange whose every answer is computed by plug-ins that were run anew."""
    codec = PlainCodec({*CONTROL, *form.messages()})

    def answer(site: Site, *given: Message) -> Any:
        with run_again(probe.plugins):
            _, algorithm = Federation.from_config(probe.config, tuple(probe.plugins)).build()
            fresh = next(f for f in algorithm.forms if f.name == form.name)
            mine = next(e for e in fresh.exchanges if e.name == exchange.name)
            there = PlainCodec({*CONTROL, *fresh.messages()})
            known = there.unpack(codec.pack({"given": given, "memory": site.memory}))
            site.memory = known["memory"]
            rows = said(several(mine.answer(site, *known["given"])))
            back = codec.unpack(there.pack({"memory": site.memory, "said": rows}))
        site.memory = back["memory"]
        return messages(back["said"], exchange.back) if exchange.back else None

    return replace(exchange, answer=answer)

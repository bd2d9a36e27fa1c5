"""A run that is looked at: what clients were given and said before any guard, and what left."""

from __future__ import annotations

import contextlib
import hashlib
import io
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import torch

from algorithms.tasks import Site, Task
from protocols.forms import Algorithm, Exchange, Form
from protocols.messages import Message, partial_of, unmixed_of
from protocols.plan.plan import Plan
from protocols.sessions.engine import Delivery
from protocols.unready import unsummed_of
from protocols.wire.control import CONTROL
from secure_fgl import _floors
from secure_fgl.config import ModelConfig
from secure_fgl.federation import Federation
from secure_fgl.isolation.frames import PlainCodec, messages, said
from secure_fgl.plugins.in_use import Plugins
from secure_fgl.plugins.loading import load, run
from secure_fgl.run.simulation import Preparation
from secure_fgl.store.finished_run import Run
from secure_fgl.transports.memory import MemoryTransport

__all__ = ["Played", "Probe", "Wrap", "anew", "held_out_labels", "play", "run_again", "several"]


Wrap = Callable[["Probe", Form[Any], Exchange], Exchange]
"""Returns an exchange of a form with another answer."""


@dataclass
class Played:
    """What a run left, and what passed on the way.

    Attributes:
        run: the finished run.
        plan: what it was held to.
        answers: per answer of a client, in order: exchange and digest of what was given and said.
        sent: every envelope that travelled.
        messages: how many deliveries the transport carried.
        largest: per message and field the largest number that one client said in it.
        printed: what was printed meanwhile, warnings included.
    """

    run: Run
    plan: Plan
    answers: list[tuple[str, str]] = field(default_factory=list)
    sent: list[bytes] = field(default_factory=list)
    messages: int = 0
    largest: dict[tuple[str, str], float] = field(default_factory=dict)
    printed: str = ""

    @property
    def learnt(self) -> tuple[Any, ...]:
        """What two runs of one seed have in common: model, metrics, and every answer."""
        result = self.run.result
        return result["model_sha256"], result["metrics"], self.answers


class Probe(Federation):
    """A federation whose clients' answers are looked at.

    Attributes:
        wraps: put around every answer, the last one outermost.
        changes: done to the sites once they are loaded.
    """

    wraps: Sequence[Wrap] = ()
    changes: Sequence[Callable[[Probe, Sequence[Site]], None]] = ()

    def _built(self) -> tuple[Task, Algorithm[Any], ModelConfig]:
        task, algorithm, model = super()._built()
        wrapped = replace(algorithm, forms=tuple(map(self._wrapped, algorithm.forms)))
        return task, wrapped, model

    def _wrapped(self, form: Form[Any]) -> Form[Any]:
        exchanges = form.exchanges
        for wrap in self.wraps:
            exchanges = tuple(wrap(self, form, exchange) for exchange in exchanges)
        return replace(form, exchanges=exchanges)

    def prepare(self, plan: Plan | None = None) -> Preparation:
        """Return everything that a run needs, with sites that are changed when they are loaded."""
        prepared = super().prepare(plan)
        load = prepared.load

        def changed(only: Sequence[str] | None = None, *, stand_ins: bool = False) -> None:
            load(only, stand_ins=stand_ins)
            for change in self.changes:
                change(self, prepared.sites)

        prepared.load = changed  # type: ignore[method-assign]
        return prepared


@contextlib.contextmanager
def run_again(plugins: Plugins) -> Iterator[None]:
    """Let the plug-ins' modules be new ones until the context ends, as in a new process."""
    before: list[ModuleType] = [load(plugin) for plugin in plugins]
    try:
        for plugin in plugins:
            run(plugin)
        yield
    finally:
        for module in before:
            sys.modules[module.__name__] = module
            _floors.approve(module)


@dataclass
class Notes:
    """What is noted while a run goes on; see `Played`."""

    answers: list[tuple[str, str]] = field(default_factory=list)
    messages: int = 0
    largest: dict[tuple[str, str], float] = field(default_factory=dict)

    def measure(self, message: Message) -> None:
        """Take over how large the numbers of a message are; of what the door makes it of, none."""
        if any(found(message) is not None for found in (unmixed_of, partial_of, unsummed_of)):
            return
        for one in type(message).fields:
            if one.wire != "bytes":
                place = type(message).__name__, one.name
                most = float(np.max(np.abs(getattr(message, one.name)), initial=0.0))
                self.largest[place] = max(self.largest.get(place, 0.0), most)


def several(answer: Message | tuple[Message, ...] | None) -> tuple[Message, ...]:
    """Return what an answer said, always as a tuple."""
    return () if answer is None else answer if isinstance(answer, tuple) else (answer,)


def _noting(played: Notes) -> Wrap:
    """Return a wrap that notes what was given and said, but what it says held-out records give."""

    def wrap(probe: Probe, form: Form[Any], exchange: Exchange) -> Exchange:
        codec = PlainCodec({*CONTROL, *form.messages()})

        def answer(site: Site, *given: Message) -> Any:
            found = exchange.answer(site, *given)
            own = [m for m in several(found) if type(m) not in exchange.held_out]
            text = codec.pack({"given": said(given), "said": said(own)})
            played.answers.append((exchange.name, hashlib.sha256(text).hexdigest()))
            for message in own:
                played.measure(message)
            return found

        return replace(exchange, answer=answer)

    return wrap


def play(probe: Probe, out: Path, *, wraps: Sequence[Wrap] = (), resume: bool = False) -> Played:
    """Run and look. What is raised is the caller's."""
    notes, printed = Notes(), io.StringIO()
    sent: list[bytes] = []
    probe.wraps = (*wraps, _noting(notes))

    class Tap(MemoryTransport):
        def exchange(self, deliveries: Sequence[Delivery]) -> list[Delivery]:
            found = super().exchange(deliveries)
            notes.messages += len(deliveries)
            sent.extend(bytes(one.data) for one in (*deliveries, *found))
            return found

    def connect(sessions: Mapping[str, Any]) -> MemoryTransport:
        return Tap(sessions)

    with contextlib.ExitStack() as quiet:
        quiet.enter_context(contextlib.redirect_stdout(printed))
        quiet.enter_context(contextlib.redirect_stderr(printed))
        warned = quiet.enter_context(warnings.catch_warnings(record=True))
        quiet.enter_context(run_again(probe.plugins))
        warnings.simplefilter("always")
        plan = probe.plan()
        run = probe.run(out, plan=plan, connect=connect, resume=resume)
    printed.writelines(f"{warning.message}\n" for warning in warned or ())
    return Played(run, plan, notes.answers, sent, notes.messages, notes.largest, printed.getvalue())


# Answers by a file that was run anew, from memory that was written down and read again.
#
# A client's process may be another one in every round: it was killed, or answers are isolated. So
# all that one answer leaves for the next lies in `site.memory`, in values that kept state can
# hold. Here every answer is computed by a module that was run just now, and messages and memory
# go through the codec of isolated answers. What a file remembers elsewhere (in a global, in a
# function's closure) is gone then, and so is what a client's side would hand to the aggregator's
# behind the plan's back.


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


# Sites whose held-out records have other labels: what is said of training must not notice.


def held_out_labels(probe: Probe, sites: Sequence[Site]) -> None:
    """Give every record that trains nowhere another label, or another rating."""
    task, _ = probe.build()
    for site in sites:
        site.data = _changed(site.data, task.spec)


def _changed(data: Any, spec: Any) -> Any:
    others = ~torch.as_tensor(data.train)
    if spec.task == "rating":
        flipped = spec.lowest + spec.highest - data.rating
        return replace(data, rating=torch.where(others, flipped, data.rating))
    if data.y.ndim > 1:  # labels that are answered with 0 or 1, or not at all
        return replace(data, y=torch.where(others[:, None], 1 - data.y, data.y))
    moved = torch.where(others & (data.y >= 0), (data.y + 1) % spec.classes, data.y)
    return replace(data, y=moved, **({"kept": {}} if spec.task == "node" else {}))

"""What the attacks on a finished run are given: captured rounds, and what was computed in them.

A capture holds what a client was given, its memory before it answered and the bytes that left
(`protocols.capture`). What the client said before protection is computed again from the data, with
the same code and the same draws; it is never stored. The bytes are held against the ledger first.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from algorithms.site import Site
from audits.attacks import Exposure, Layers, Material, Truth
from audits.steps import Case
from crypto.masks import container
from crypto.samplers import entropy
from protocols.disclosures import Disclosure
from protocols.envelope import Envelope
from protocols.errors import EvidenceError, SecureFglError
from protocols.forms import Exchange, Form
from protocols.gateway import commitment
from protocols.guards import find
from protocols.messages import Message, SumMessage
from protocols.papers import Papers
from protocols.planner import AGGREGATOR_NAME, sum_layout, sum_ring
from protocols.roster import Identity, Role
from protocols.rounds import Reply
from protocols.sessions.recording import Captured, Recorder
from secure_fgl.captures import Captures
from secure_fgl.config import Config
from secure_fgl.driving import one_thread_and_deterministic
from secure_fgl.errors import UsageError
from secure_fgl.federation import Federation
from secure_fgl.runs import Run
from secure_fgl.truths import truth_of

__all__ = ["material"]

Arrays = Mapping[str, np.ndarray[Any, np.dtype[np.float64]]]


def material(run: Run, *, profile: str = "quick", data: Path | None = None) -> Material:
    """Return everything that the attacks on a run may use.

    Args:
        run: the run.
        profile: ``quick`` looks at the first captured round, ``default`` at all of them.
        data: the data folder, if it lies elsewhere now.

    Raises:
        EvidenceError: papers cannot be read, or a capture is not what the ledger says was sent.
    """
    case = Case(run.view())
    simulated = case.roster_file.simulated
    if case.policy.capture is None:
        why = f"policy {case.policy.name!r} forbids capture"
        return Material(case=case, missing=why, simulated=simulated)
    try:
        with one_thread_and_deterministic():
            replay = _Replay.of(run, case, data)
            found = tuple(replay.exposures(first_only=profile == "quick"))
    except EvidenceError:
        raise
    except SecureFglError as error:  # no keys, no data: what needs no capture is still audited
        return Material(case=case, missing=error.what, simulated=simulated)
    missing = "" if found else "no captured message holds a model update"
    return Material(
        case=case,
        layers=replay.layers,
        exposures=found,
        missing=missing,
        simulated=simulated,
    )


@dataclass(frozen=True, repr=False)
class _Replay:
    """A run's code and data once more, and its captures."""

    case: Case
    config: Config
    form: Form[Any]
    task: Any
    sites: Mapping[str, Site]
    captures: Captures

    @classmethod
    def of(cls, run: Run, case: Case, data: Path | None) -> _Replay:
        """Build and load what the run was made of."""
        moved = () if data is None else (f"data.root={data}",)
        config = Config.load(run.path / "config.yaml", moved)
        federation = Federation.from_config(config)
        federation.policy = case.policy
        prepared = federation.prepare()
        if prepared.plan.digest != case.plan_digest:
            raise UsageError(
                "The configuration beside this run does not make the run's plan.",
                why="config.yaml or the code changed since",
                fix="audit with the version that made the run",
            )
        prepared.load()
        sites = dict(zip(prepared.plan.clients, prepared.sites, strict=True))
        captures = Captures(case.roster_file.run, run.path)
        form = case.policy.admit(prepared.algorithm)
        return cls(case, config, form, prepared.task, sites, captures)

    def exposures(self, *, first_only: bool) -> Iterator[Exposure]:
        """Yield every client's captured updates."""
        replies = self._recorder(AGGREGATOR_NAME, Role.AGGREGATOR, None).replies()
        for client, site in self.sites.items():
            truth = truth_of(site, self.task.spec, self.config.model.layers)
            answers = self._recorder(client, Role.CLIENT, site).answers()
            rounds = sorted({a.round for a in answers})
            wanted = set(rounds[:1] if first_only else rounds)
            for answer in answers:
                exchange = next(e for e in self.form.exchanges if e.name == answer.exchange)
                if answer.round in wanted and _updates(exchange):
                    yield self._exposure(client, site, truth, answer, exchange, replies)

    def _exposure(
        self,
        client: str,
        site: Site,
        truth: Truth,
        answer: Captured,
        exchange: Exchange,
        replies: Mapping[int, Reply],
    ) -> Exposure:
        self._check_sent(client, answer)
        site.memory, site.draws = dict(answer.memory), dict(answer.draws)
        said = exchange.answer(site, *answer.given)
        messages = said if isinstance(said, tuple) else (said,)
        (update,) = _updates(exchange)
        raw = next(m for m in messages if type(m) is update)
        seen, cohort = self._seen(client, answer, exchange, replies)
        model, options = self.config.model, self.config.algorithm
        steps = options.options.get(options.name, {}).get("steps", 1)
        return Exposure(
            client=client,
            round=answer.round,
            known=_fields(*answer.given),
            raw=_fields(raw),
            seen=seen,
            cohort=cohort,
            truth=truth,
            lr=model.lr,
            steps=options.epochs * int(steps),
            optimiser=model.optimiser,
        )

    def _check_sent(self, client: str, answer: Captured) -> None:
        """Hold the captured bytes against the ledger."""
        known = {
            entry["commitment"]
            for party, entry in self.case.book.of_kind("release")
            if party == client and entry["exchange"] == answer.number
        }
        for data in answer.sent:
            if commitment(Envelope.decode(data)) not in known:
                raise EvidenceError(
                    "captured", f"a captured envelope of {client} is not what its ledger says left"
                )

    def _seen(
        self, client: str, answer: Captured, exchange: Exchange, replies: Mapping[int, Reply]
    ) -> tuple[Arrays | None, int]:
        """Return what the aggregator learnt: the upload itself if it is clear, else the total."""
        case, (update,) = self.case, _updates(exchange)
        if find(case.policy.chain(Disclosure.SUM), "unsafe_clear"):
            return self._clear(answer, exchange, update), 1
        asked, reply = case.asks.all[answer.number], replies.get(answer.number)
        if reply is None or client not in asked.arrived:
            return None, 0
        return _fields(reply.total(update)), reply.answers

    def _clear(self, answer: Captured, exchange: Exchange, update: type[Message]) -> Arrays:
        case, id = self.case, f"{exchange.name}.up.{Disclosure.SUM}"
        item = case.plan.item(id)
        kinds = [k for k in exchange.back if k.disclosure is Disclosure.SUM]
        chain = case.policy.chain(Disclosure.SUM)
        layout = sum_layout(kinds, chain, {**case.plan.dims, **item.dims})
        ring = sum_ring(layout, chain, len(case.plan.clients), None, item.noise)
        sent = (Envelope.decode(data) for data in answer.sent)
        body = next(envelope.body for envelope in sent if envelope.header.item == id)
        integers = ring.integers(np.frombuffer(body, dtype=container(ring.modulus)))
        return _fields(layout.decode(integers, 1)[update])

    def _recorder(self, party: str, role: Role, site: Site | None) -> Recorder:
        """Return what reads a party's captures; the run's own keys are gone and not needed."""
        case = self.case
        me = Identity.from_seed(party, role, entropy(32))
        papers = Papers(me, case.roster, case.plan, case.policy, case.roster_file.run)
        return Recorder(self.captures.open(party), papers, self.form, site)

    @property
    def layers(self) -> Layers:
        """Where the parts of the model lie in what is said of it."""
        return layers_of(self.task.layout(), self.task.spec, self.case.plan.dims.get("d", 0))


def layers_of(layout: Any, spec: Any, size: int) -> Layers:
    """Return where first and last layer lie in the first `size` values of a flat vector.

    Args:
        layout: name and shape of every parameter, in the vector's order.
        spec: of the data.
        size: of what is said; FedPer leaves the head out.
    """
    first, weight, bias, start = None, None, None, 0
    for _, shape in layout:
        part = slice(start, start + int(np.prod(shape)))
        start = part.stop
        if start > size:
            break
        if first is None and len(shape) == 2 and shape[0] == spec.features:
            first = (part, shape)
        if len(shape) == 2 and shape[1] == spec.classes:
            weight = (part, shape)
        if len(shape) == 1 and shape[0] == spec.classes:
            bias = (part, shape)
    return Layers(first=first, last_weight=weight, last_bias=bias)


def _updates(exchange: Exchange) -> list[type[SumMessage]]:
    """Return the message of an exchange that holds a change of the model."""
    sums = (kind for kind in exchange.back if issubclass(kind, SumMessage))
    return [kind for kind in sums if any(f.name == "delta" for f in kind.fields)][:1]


def _fields(*messages: Message) -> Arrays:
    """Return the fields of messages by name, as float64."""
    return {
        field.name: np.asarray(getattr(message, field.name), dtype=np.float64)
        for message in messages
        for field in message.fields
        if field.wire != "bytes"
    }

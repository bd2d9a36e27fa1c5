"""What clients said in captured rounds, computed again at the run's own code."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from algorithms.tasks import Site
from audits.attacks import (
    Answers,
    Compared,
    Exposure,
    ItemRows,
    Layers,
    Mixtures,
    RowsTold,
    Tagged,
)
from audits.attacks._shared.payloads import item_rows
from audits.checks.captured import recorded_pieces
from audits.evidence.steps import Case
from crypto.masks import container
from crypto.samplers import entropy
from protocols.disclosures.match.run import match_item
from protocols.disclosures.names import Disclosure
from protocols.disclosures.row_sum.run import row_item
from protocols.errors import EvidenceError, SecureFglError
from protocols.forms import Exchange, Form
from protocols.messages import Message
from protocols.plan.steps import Step
from protocols.policy.guard import find
from protocols.rounds import Reply
from protocols.sessions.store.recording import Captured, Recorder
from protocols.wire.envelope import Envelope
from protocols.wire.roles import Role
from protocols.wire.roster import AGGREGATOR_NAME, Identity
from protocols.wire.run_context import RunContext
from secure_fgl.attack_inputs.again.addressed import read_total
from secure_fgl.attack_inputs.again.canaries import check_opened, training_sites
from secure_fgl.attack_inputs.again.generators import answer_material, helps
from secure_fgl.attack_inputs.again.row_systems import told_rows
from secure_fgl.attack_inputs.again.said import SaidInAsk, afresh, answered_again
from secure_fgl.attack_inputs.agreement import agree, rounded
from secure_fgl.attack_inputs.captured_sent import (
    check_said,
    check_sent,
    must_have,
    must_say,
    summed,
)
from secure_fgl.attack_inputs.comparisons import compared_material, compares
from secure_fgl.attack_inputs.items import item_material
from secure_fgl.attack_inputs.mixtures import mixed_material
from secure_fgl.attack_inputs.model_layout import layers_of, outside
from secure_fgl.attack_inputs.run_code import RunCode
from secure_fgl.attack_inputs.tags import tag_material
from secure_fgl.attack_inputs.truths import truth_of
from secure_fgl.attack_inputs.updates import Arrays, fields, updates
from secure_fgl.attack_inputs.verified_run import config_of, plugins_of
from secure_fgl.attack_inputs.weighed import weighed_field, weighed_kind, weighed_material
from secure_fgl.config import Config
from secure_fgl.data.sources._shared.opening import nothing_fetched
from secure_fgl.errors import UsageError
from secure_fgl.federation import Federation
from secure_fgl.plugins.in_use import Given
from secure_fgl.run.simulation import Preparation
from secure_fgl.store.captures import Captures
from secure_fgl.store.finished_run import Run


@dataclass(frozen=True, repr=False)
class ReplayedRun:
    """A run's code, data and captures; `training`: sites with canaries, whose coins are open."""

    case: Case
    config: Config
    form: Form[Any]
    task: Any
    sites: Mapping[str, Site]
    captures: Captures
    prepared: Preparation
    training: Mapping[str, Site]

    @classmethod
    def of(
        cls, run: Run, case: Case, data: Path | None, plugins: Sequence[Given], stand_ins: bool
    ) -> ReplayedRun:
        """Build and load what the run was made of; raises UsageError, NeedsPlugin among them."""
        config, side = config_of(case, data), case.view.side
        named = tuple(plugins_of(case, plugins))
        federation = Federation(config=config, policy=case.policy, plugins=named)
        prepared = federation.prepare()
        if prepared.plan.digest != case.plan_digest:
            raise UsageError(
                "The configuration beside this run does not make the run's plan.",
                why="config.yaml or the code changed since",
                fix="audit with the version that made the run",
            )
        try:
            with nothing_fetched():
                prepared.load([side] if side else None, stand_ins=stand_ins or bool(side))
        except SecureFglError as error:
            if data is not None:
                raise
            # What is said goes on into the attacks' report, and the cause may name a folder here.
            raise UsageError(
                f"The data set {config.data.name!r} cannot be read here; audit attack with --data "
                "says why.",
                why=": ".join(filter(None, (error.what, error.why))),
                fix=error.fix,
            ) from error
        sites = dict(zip(prepared.plan.clients, prepared.sites, strict=True))
        captures = Captures(case.roster_file.run, run.path, run.keys)
        form = case.policy.admit(prepared.algorithm)
        training = training_sites(case, sites, prepared.task.spec)
        return cls(case, config, form, prepared.task, sites, captures, prepared, training)

    def exposures(self, *, first_only: bool) -> list[Exposure]:
        """Return every client's captured updates; what was computed again is what left."""
        replies, checked = self.replies(), self.checked()
        exchanges, first = self.asks(checked), set[int]()
        for answers in checked.values():
            begun = min((a.round for a in answers), default=0)
            first |= {a.number for a in answers if a.round == begun}
        # A total is held against all who are in it, so an Ask is computed whole or not at all.
        chosen = sorted(first if first_only else exchanges)
        computed = {number: self._computed(exchanges[number]) for number in chosen}
        whole = ((said, replies.get(number)) for number, said in computed.items() if said)
        found = [exposure for one in whole for exposure in self._exposed(*one)]
        found += weighed_material(self, checked, first_only=first_only)
        return sorted(found, key=lambda exposure: (exposure.client, exposure.round))

    def asks(
        self, checked: Mapping[str, Sequence[Captured]] | None = None
    ) -> dict[int, list[tuple[str, Captured]]]:
        """Return number of each captured Ask -> its clients and what they captured."""
        found: dict[int, list[tuple[str, Captured]]] = {}
        for client, answers in (self.checked() if checked is None else checked).items():
            for answer in answers:
                found.setdefault(answer.number, []).append((client, answer))
        return found

    def mixed(self, *, first_only: bool) -> list[Mixtures]:
        """Return every client's captured mixtures."""
        if not self.case.plan.all_of(Disclosure.MIXED, Step.UP):
            return []
        return mixed_material(self, self.checked(), self.replies(), first_only=first_only)

    def items(self) -> list[ItemRows]:
        """Return every client's captured gradients of item rows."""
        if not item_rows(self.case.plan, self.case.policy):
            return []
        return item_material(self, self.checked(), self.replies(), self.clear)

    def tagged(self) -> list[Tagged]:
        """Return every captured matching of items, or of nodes, by tags."""
        if match_item(self.case.plan) is None and row_item(self.case.plan) is None:
            return []

        def views(party: str, role: Role) -> dict[int, dict[str, bytes]]:
            return self._recorder(party, role, None).views()

        return tag_material(self, self.checked(), views)

    def answers(self) -> Answers | None:
        """Return the answers to clients' generators; None if no client helps another one."""
        if helps(self.form) is not None:
            check_opened(self.sites, self.training)
        return answer_material(self)

    def compared(self) -> Compared | None:
        """Return all captured matrices of cosines; None if the run compares nobody."""
        if not compares(self.case):
            return None
        check_opened(self.sites, self.training)
        return compared_material(self, self.checked(), self.replies())

    def rows(self) -> RowsTold | None:
        """Return what receivers are told of rows; None if the run tells none."""
        return told_rows(self)

    def checked(self) -> dict[str, list[Captured]]:
        """Return what every client captured, held against its ledger."""
        return {client: self.answers_of(client, site) for client, site in self.sites.items()}

    def replies(self) -> dict[int, Reply]:
        """Return what the aggregator captured; nothing that it had may be missing."""
        replies = self._recorder(AGGREGATOR_NAME, Role.AGGREGATOR, None).replies()
        self._check_whole(AGGREGATOR_NAME, set(replies), must_have(self.case, self.form))
        return replies

    def answers_of(self, client: str, site: Site) -> list[Captured]:
        """Return what a client captured, likewise, held against its ledger."""
        answers = self._recorder(client, Role.CLIENT, site).answers()
        self._check_whole(client, {a.number for a in answers}, self._told[1].get(client, set()))
        for answer in answers:
            check_sent(self.case, self.exchange_of(answer), client, answer)
        return answers

    def exchange_of(self, answer: Captured) -> Exchange:
        """Return what a client answered."""
        return next(e for e in self.form.exchanges if e.name == answer.exchange)

    def _computed(self, ask: Sequence[tuple[str, Captured]]) -> list[SaidInAsk]:
        """Let everybody in an Ask answer once more, if it asks for updates."""
        asked = ((c, answer, self.exchange_of(answer)) for c, answer in ask if c in self.training)
        return [self.said_again(*one) for one in asked if updates(one[2])]

    def said_again(self, client: str, answer: Captured, exchange: Exchange) -> SaidInAsk:
        """Let a client answer once more."""
        truth = truth_of(self.sites[client], self.task.spec, self.config.model.layers)
        site = self.training[client]
        fresh = afresh(site, answer, exchange)
        said = answered_again(site, answer, exchange)
        parts = said if isinstance(said, tuple) else (said,)
        messages = tuple(message for message in parts if message is not None)
        check_said(self.case, exchange, client, answer, messages)
        return SaidInAsk(client, truth, answer, exchange, messages, fresh)

    def _exposed(self, ask: Sequence[SaidInAsk], reply: Reply | None) -> Iterator[Exposure]:
        """Yield what the receiver saw of one Ask, held against what its clients said."""
        case, exchange = self.case, ask[0].exchange
        (update,) = updates(exchange)
        layout = summed(case, exchange)[0]
        asked = case.exchanges.all[ask[0].answer.number]
        arrived = asked.arrived - {asked.reader}  # who reads sent a blind
        ask = [one for one in ask if one.client != asked.reader]
        rounds = {one.client: fields(rounded(layout, one.messages, update)) for one in ask}
        known = [rounds[client] for client in sorted(arrived & self.training.keys())]
        unknown = len(arrived) - len(known)  # whose coins were never opened
        clear = find(case.policy.chain(Disclosure.SUM), "unsafe_clear") is not None
        # Noise comes from the operating system: nobody can compute it again.
        exact = case.plan.training is None and all(i.noise is None for i in case.plan.items)
        total: Arrays | None = None
        alone = not (clear or exact or asked.reader)
        if not clear and reply is not None and asked.reader:
            if unknown:
                return  # only the reader had the total
            item = case.plan.find(exchange.name, Disclosure.SUM, Step.UP)
            total = read_total(known, item)
        elif not clear and reply is not None:
            total = fields(reply.total(update))
            if exact:
                agree(layout, known, total, update, unknown)
        for one in ask:
            seen = self.clear(one.answer, exchange, update) if clear else total
            if clear and seen is not None and exact:
                agree(layout, [rounds[one.client]], seen, update)
            counted = seen if clear or one.client in arrived else None
            yield one.exposure(self, update, counted, 1 if clear else len(arrived), alone=alone)

    def _check_whole(self, party: str, found: set[int], wanted: set[int]) -> None:
        """Nobody may choose what is attacked by taking captured rounds away."""
        if gone := sorted(wanted - found):
            raise EvidenceError(
                "captured", f"{party} lacks {len(gone)} captured rounds that its ledger says it had"
            )

    def clear(self, answer: Captured, exchange: Exchange, update: type[Message]) -> Arrays:
        """Return what a client's own upload says, which left in clear."""
        layout, ring = summed(self.case, exchange)
        item = self.case.plan.find(exchange.name, Disclosure.SUM, Step.UP)
        sent = (Envelope.decode(data) for data in answer.sent)
        body = next(e.body for e in sent if e.header.item == item.id)
        integers = ring.integers(np.frombuffer(body, dtype=container(ring.modulus)))
        return fields(layout.decode(integers, 1)[update])

    def _recorder(self, party: str, role: Role, site: Site | None) -> Recorder:
        """Return what reads a party's captures; the run's own keys are gone and not needed."""
        case, me = self.case, Identity.from_seed(party, role, entropy(32))
        facts = case.roster, case.plan, case.policy, case.roster_file.run
        context = RunContext(me, *facts, plugins=self.prepared.plugins.code)
        pieces = self.captures.open(party, self._told[0].get(party, {}))
        return Recorder(pieces, context, self.form, site)

    @cached_property
    def _told(self) -> tuple[dict[str, dict[str, str]], dict[str, set[int]]]:
        """By party the captured pieces, by client the Asks to be captured, as ledgers say."""
        return recorded_pieces(self.case.ledger_index), must_say(self.case, self.form)

    @property
    def code(self) -> RunCode:
        """What makes the run's algorithm once more."""
        return RunCode(self.config, self.prepared.plugins)

    @property
    def layers(self) -> Layers:
        """Where the parts of the model lie in what is said of it."""
        dims = self.case.plan.dims
        kinds = (weighed_kind(exchange.back) for exchange in self.form.exchanges)
        weighed = (f for k in kinds if k for f in k.fields if f.name == weighed_field(k))
        size = next((int(np.prod(f.sizes(dims))) for f in weighed), dims.get("d", 0))
        return layers_of(self.task.layout(), self.task.spec, size, outside(self.task))

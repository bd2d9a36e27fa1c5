"""What an audit may use of a run folder that somebody else made: nothing before it is verified."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from algorithms.nn._shared.sparse import Sparse
from algorithms.tasks import Site
from algorithms.tasks.evaluation import begun
from algorithms.tasks.inputs import NodeData
from audits.attacks import (
    Answers,
    Bags,
    Compared,
    Exposure,
    ItemRows,
    Layers,
    Mixtures,
    Replica,
    RowsTold,
    Tagged,
    Truth,
)
from audits.attacks._shared.material import Array, Floats
from audits.attacks._shared.payloads import item_rows
from audits.checks.outcome import recorded_pieces
from audits.evidence.steps import Case, Status
from audits.evidence.verify import verify
from crypto.masks import container
from crypto.samplers import entropy
from protocols.disclosures.match.run import match_item
from protocols.disclosures.names import Disclosure
from protocols.disclosures.row_sum.run import row_item
from protocols.disclosures.sum.view import TotalView
from protocols.errors import EvidenceError, SecureFglError
from protocols.forms import Exchange, Form
from protocols.messages import Message, values
from protocols.plan.plan import code_drift
from protocols.plan.steps import Step
from protocols.policy.guard import find
from protocols.policy.guards import Clip
from protocols.rounds import Cohort, Reply, Sealed
from protocols.sessions.store.recording import Captured, Recorder
from protocols.wire.envelope import Envelope
from protocols.wire.roles import Role
from protocols.wire.roster import AGGREGATOR_NAME, Identity
from protocols.wire.run_context import RunContext
from secure_fgl.attack_inputs.again import Reader, SaidInAsk, afresh, answered_again, read_total
from secure_fgl.attack_inputs.captured_sent import (
    Arrays,
    RunCode,
    agree,
    check_said,
    check_sent,
    fields,
    layers_of,
    must_have,
    must_say,
    outside,
    rounded,
    summed,
    truth_of,
    updates,
)
from secure_fgl.attack_inputs.comparisons import compared_material, compares
from secure_fgl.attack_inputs.mixtures import mixed_material
from secure_fgl.attack_inputs.models import check_opened, training_sites
from secure_fgl.attack_inputs.rows import answer_material, helps, told_rows
from secure_fgl.attack_inputs.tagged import item_material, tag_material
from secure_fgl.attack_inputs.weighed import weighed_field, weighed_kind, weighed_material
from secure_fgl.config import OWN, Config
from secure_fgl.data.datasets import ROOT_VARIABLE
from secure_fgl.data.sources._shared.pyg_files import nothing_fetched
from secure_fgl.errors import UsageError
from secure_fgl.federation import Federation
from secure_fgl.plugins.in_use import Given, Plugins
from secure_fgl.run.driver import one_thread_and_deterministic
from secure_fgl.run.simulation import Preparation
from secure_fgl.store.captures import Captures
from secure_fgl.store.finished_run import Run


class NeedsPlugin(UsageError):
    """The algorithm, model or data of a run are a plug-in, and the auditor gave none."""


def verified(run: Run) -> Case:
    """Return a run as it was read, after every step of ``audit verify`` but the report's own.

    What is used later is what was verified: the folder is not read again.

    Raises:
        EvidenceError: at the first step that failed.
    """
    view = run.view()
    for step in verify(view).steps:
        if step.status is Status.FAIL and step.name != "report":
            raise EvidenceError(step.name, f"{step.detail}; nothing of the run was used further")
    return Case(view)


def config_of(case: Case, data: Path | None) -> Config:
    """Return the run's configuration, which its ledgers name, with the auditor's own paths.

    It names no plug-in: see `plugins_of`.
    """
    document = Config.of_others((case.view.config_text or b"").decode("utf-8", "replace"))
    root = data or os.environ.get(ROOT_VARIABLE) or None
    own = document.shared()
    named = own.data.model_copy(update={"root": None if root is None else str(root)})
    if named.name == OWN and root is None:
        raise UsageError(
            "The data of this run lie in folders of their own, and none was named.",
            why="an audit takes no path from a run folder: whoever made it could name any",
            fix=f"give the folder with --data, or in {ROOT_VARIABLE}",
        )
    said = False if document.isolate is False else None  # which the plan says, too
    return own.model_copy(update={"data": named, "plugins": (), "isolate": said})


def plugins_of(case: Case, given: Sequence[Given]) -> Plugins:
    """Return the auditor's own copies of the run's plug-ins, read and not run.

    Nothing is looked for because a run names it, not even what is installed here.

    Args:
        case: the run.
        given: what the auditor named.

    Raises:
        NeedsPlugin: the run has plug-ins, and nothing was given.
        UsageError: what was given is not what the plan names, by name and digest.
    """
    planned = case.plan.plugins
    if planned and not given:
        names = ", ".join(entry.rpartition(".")[2] for entry in planned)
        raise NeedsPlugin(
            f"This run's code is a plug-in ({names}), which no audit takes from a run: not tested "
            "without it; give your own copy with --plugin FILE.",
            why="an audit imports nothing because a run folder names it",
            fix="ask whoever approved the plan for the file; its digest stands there",
        )
    found = Plugins((), given)
    if differences := code_drift(planned, found.code):
        raise UsageError(
            f"What was given with --plugin is not what this run's plan names: {differences[0]}.",
            why="another file, another version, or one that the run does not use",
            fix="give the file whose SHA-256 stands in the plan, under 'code'",
        )
    return found


# --- What clients said in captured rounds, computed again at the run's own code ---


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


# --- What clients would answer to models of somebody's choice: a run's own code and data once more
# ---
#
# Nothing is sent. Clients answer by the algorithm's code from the memory with which a run begins;
# what they say is read as its receiver would (`secure_fgl.attack_inputs.again`).

_MODEL = "weights"  # what hands a model out calls it so, as attacks on captured rounds know it


def has_replica(case: Case) -> bool:
    """Tell whether a run is one whose clients can be asked again, before any data is read."""
    return case.plan.data.task == "node"


def replica_of(replay: ReplayedRun) -> Replica:
    """Return the clients of a run, ready to answer.

    Raises:
        UsageError: they are not given a whole model and asked for its change; says what they are.
    """
    first = _first(replay)
    exchange = next(e for e in replay.form.exchanges if e.given == tuple(map(type, first)))
    kinds = updates(exchange)
    given = values(first[0]).get(_MODEL)
    if not kinds or given is None:
        raise _none("its clients are not given a model and asked for a change of it")
    if given.shape != (replay.task.size,):
        raise _none("its clients are not given the whole model, as each keeps a part of its own")
    reader = Reader(replay.case, exchange, kinds[0])
    column, clip = reader.column, find(replay.case.policy.chain(Disclosure.SUM), "clip")
    if column.grid is None or not isinstance(clip, Clip):
        raise _none("a change stands on no grid")
    answering = _Answering(replay, reader, first)
    model, bare = replay.config.model, replay.code.bare(replay.task)
    return Replica(
        model=replay.code.model_name(replay.task.spec.task),
        depth=model.layers,
        optimiser="sgd" if bare.gradients else model.optimiser or "adamw",
        lr=replay.task.lr,
        decay=replay.task.lr * (model.weight_decay or 0.0) * replay.config.algorithm.epochs,
        layers=replay.layers,
        start=np.array(given, dtype=np.float32),
        ask=exchange.name,
        bags={name: _bags(site.data) for name, site in replay.sites.items()},
        norm="l2" if clip.norm == "l2" else "linf",
        bound=clip.bound,
        weighted=bool(column.field.scale),
        largest=column.grid.bound,
        step=column.grid.step,
        noise=reader.noise,
        play=answering.play,
        leader=min(replay.sites),
        lead=answering.lead,
    )


def _none(why: str) -> UsageError:
    return UsageError(f"The clients of this run cannot be asked again: {why}.")


def _first(replay: ReplayedRun) -> tuple[Message, ...]:
    """Return what the first Ask of the first round hands out.

    Raises:
        UsageError: it asks nothing, or hands out what the aggregator cannot choose.
    """
    steps = replay.form.round(replay.prepared.first_state(), Cohort(replay.case.plan.clients))
    ask = next(steps, None)
    steps.close()
    given = () if ask is None else tuple(m for m in ask.handed if not isinstance(m, Sealed))
    if ask is None or len(given) != len(ask.handed):
        raise _none("nothing that an aggregator chooses is handed out")
    return given


def _bags(data: NodeData) -> Bags:
    nodes = data.nodes
    matrix = _csr(data.x.matrix) if isinstance(data.x, Sparse) else sp.csr_array(data.x.numpy())
    weighed = _csr(data.propagation("symmetric").matrix)
    train = data.train.numpy().copy()
    return Bags(sp.csr_array(matrix), train, weighed.diagonal().astype(np.float64)[:nodes])


def _csr(matrix: Any) -> sp.csr_array:
    parts = (matrix.values(), matrix.col_indices(), matrix.crow_indices())
    return sp.csr_array(tuple(part.numpy() for part in parts), shape=tuple(matrix.shape))


@dataclass(frozen=True, repr=False)
class _Answering:
    """Lets clients answer, and has what they say read as its receiver would."""

    replay: ReplayedRun
    reader: Reader
    first: tuple[Message, ...]

    def play(self, models: Sequence[Any], rng: np.random.Generator) -> list[list[Exposure]]:
        """Let all clients answer one model a round; see `audits.attacks.Replica`."""
        with self._afresh():
            return [self._round(n, self._handed(m), rng) for n, m in enumerate(models, 1)]

    def lead(
        self,
        wanted: Callable[[Floats], Array],
        rounds: int,
        beyond: bool,
        rng: np.random.Generator,
    ) -> list[list[Exposure]]:
        """Let one client move the model, round by round; see `audits.attacks.Replica`."""
        form = self.replay.form.plain or self.replay.form
        others = [name for name in self.replay.sites if name != min(self.replay.sites)]
        cohort, found = Cohort(self.replay.case.plan.clients), list[list[Exposure]]()
        state = begun(form, self.replay.prepared.first_state()).start
        with self._afresh():
            for number in range(1, rounds + 1):
                steps = form.round(state, cohort)
                model = values(next(steps).handed[0])[_MODEL]  # type: ignore[arg-type]
                found.append(self._round(number, self._handed(model), rng, others))
                read = found[-1][0].seen or {}
                way = wanted(model) - model
                total = self._moved(read, way, form.reach, beyond)
                reply = Reply({type(total): TotalView(total)}, len(self.replay.sites))
                try:
                    steps.send(reply)
                except StopIteration as stop:
                    state = stop.value
        return found

    def _moved(self, read: Arrays, way: Array, reach: float, beyond: bool) -> Message:
        """Return the total of the others, with what one client adds to move the model.

        It says that it has no records. The clip binds a client that runs this code; one that runs
        its own adds any integers, and the total must only be one that the cohort could have.
        """
        column, clients = self.reader.column, len(self.replay.sites)
        clip = find(self.replay.case.policy.chain(Disclosure.SUM), "clip")
        if column.grid is None or not isinstance(clip, Clip):
            raise _none("a change stands on no grid")
        most = column.grid.bound * ((clients - 1) if beyond else 1)
        counted = float(read["count"]) if column.field.scale else float(clients)
        added = way * counted / (reach or 1.0)
        if clip.norm == "l2" and not beyond:
            added *= min(1.0, most / max(float(np.linalg.norm(added)), 1e-300))
        added = np.clip(added, -most, most)
        step = column.grid.step
        return self.reader.update(**{**read, "delta": read["delta"] + step * np.rint(added / step)})

    @contextmanager
    def _afresh(self) -> Iterator[None]:
        """Let clients begin as the run does, and give them back what they remember."""
        sites = self.replay.sites
        kept = {name: (site.memory, site.draws) for name, site in sites.items()}
        try:
            for site in sites.values():
                site.memory, site.draws = {}, {}
            with one_thread_and_deterministic():
                yield
        finally:
            for name, site in sites.items():
                site.memory, site.draws = kept[name]

    def _round(
        self,
        number: int,
        given: tuple[Message, ...],
        rng: np.random.Generator,
        of: Sequence[str] = (),
    ) -> list[Exposure]:
        """Let clients answer, all or those `of` these names, and read what they say."""
        sites = {n: site for n, site in self.replay.sites.items() if not of or n in of}
        said = {name: self._said(site, given) for name, site in sites.items()}
        seen = self.reader.read(said, rng)
        known = {_MODEL: np.asarray(values(given[0])[_MODEL], dtype=np.float64)}
        return [self._exposed(n, number, known, said, seen[n]) for n in said]

    def _exposed(
        self,
        name: str,
        number: int,
        known: Arrays,
        said: Mapping[str, Sequence[Message]],
        seen: Arrays,
    ) -> Exposure:
        return Exposure(
            client=name,
            round=number,
            known=known,
            raw=fields(next(m for m in said[name] if type(m) is self.reader.update)),
            seen=seen,
            cohort=1 if self.reader.clear else len(said),
            truth=Truth(),
            lr=self.replay.task.lr,
            steps=self.replay.config.algorithm.epochs,
            optimiser=self.replay.config.model.optimiser or "",
        )

    def _handed(self, model: Any) -> tuple[Message, ...]:
        """Return what is handed out, with another model in it."""
        mine = np.asarray(model, dtype=np.float32)
        first, *others = self.first
        return (type(first)(**{**values(first), _MODEL: mine}), *others)

    def _said(self, site: Site, given: Sequence[Message]) -> tuple[Message, ...]:
        said = self.reader.exchange.answer(site, *given)
        parts = said if isinstance(said, tuple) else (said,)
        return tuple(message for message in parts if message is not None)

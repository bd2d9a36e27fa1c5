"""One small run of any algorithm with everything recorded: bytes, messages, parties, folder."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from protocols.evidence.ledger import read_lines
from protocols.messages import Message
from protocols.plan.plan import Plan
from protocols.policy.policy import PrivacyPolicy
from protocols.roles.aggregator import AggregatorSession
from protocols.wire.control import CONTROL
from protocols.wire.envelope import Envelope
from protocols.wire.gateway import Gateway
from protocols.wire.roster import Identity, Roster
from secure_fgl.catalogue import algorithm_names
from secure_fgl.checking import subject
from secure_fgl.config import Config
from secure_fgl.data import Dataset
from secure_fgl.federation import Federation
from secure_fgl.store.finished_run import Run
from secure_fgl.transports.memory import MemoryTransport
from tests.toys.stage import Tap

POLICIES = ("he", "masks", "ckks", "unsafe_plaintext")
"""What most laws are held against; ``pilot`` has the same chain as ``he``, and a law says so."""
PROTECTED = POLICIES[:3]
LONG = pytest.mark.long


def config(name: str, policy: str = "pilot", **more: Any) -> Config:
    """Return the small configuration that all laws share, on data of a kind the algorithm takes."""
    return Config.parse(subject.document(name, policy, **more))


def mixes(name: str, policy: str = "pilot") -> bool:
    """Tell whether an algorithm has a form that mixes records."""
    return subject.mixes(Federation.from_config(config(name, policy)).build())


def pairs(policies: Sequence[str]) -> list[tuple[str, str]]:
    """Return every algorithm with each policy, and those that mix also with a relay (O23)."""
    names = algorithm_names()
    return [(n, p) for n in names for p in policies] + [(n, "shuffled") for n in names if mixes(n)]


ALIKE = ("apfl", "fcf", "fed_gate", "fed_prox", "gcfl", "gcfl_plus", "graph_fl_domain")
"""Their clients upload as those of `apfl_gate`, `fed_mf`, `fed_avg` and `fed_per` do, by the same
code; those that may be cut into clusters are too few here."""


WHOLE = ("fed_avg", "fed_pub")
"""Between them they upload in every way that any algorithm does, under every policy."""


def policies_of(name: str) -> tuple[str, ...]:
    """Return the policies under which `make test` records an algorithm; `make test-long` all.

    `WHOLE` under every policy; those of `ALIKE` under one; others under encryption, in clear and
    under masks or CKKS, in turn: that one gives what another gives, `WHOLE` show.
    """
    if name in WHOLE:
        return POLICIES
    if name in ALIKE:
        return ("he",)
    place = [other for other in algorithm_names() if other not in ALIKE].index(name)
    return ("he", ("masks", "ckks")[place % 2], "unsafe_plaintext")


def quick(cells: Sequence[tuple[str, str]]) -> list[Any]:
    """Return cells of algorithm and policy, `long` but for `policies_of` each, and mixtures."""
    return [
        pytest.param(
            name,
            policy,
            marks=()
            if policy in policies_of(name) or (policy not in POLICIES and name not in ALIKE)
            else LONG,
        )
        for name, policy in cells
    ]


def unlike(names: Sequence[str], alike: Sequence[str] = ALIKE) -> list[Any]:
    """Return every name, those that do as others do `long`."""
    return [pytest.param(n, marks=pytest.mark.long if n in alike else ()) for n in names]


def grouped(names: Sequence[str]) -> list[Any]:
    """Return every name with the policies of `make test`, and `long` with all where these differ.

    Those of `ALIKE` are `long` as a whole.
    """
    cells = []
    for name in names:
        few = () if name in ALIKE else policies_of(name)
        if few:
            cells.append(pytest.param(name, few, id=name))
        if few != POLICIES:
            cells.append(pytest.param(name, POLICIES, id=f"{name}-all", marks=LONG))
    return cells


def spread(names: Sequence[str], policies: Sequence[str], alike: Sequence[str] = ()) -> list[Any]:
    """Return every name with each policy, all but one of them `long`, in turn; all of `alike` are.

    So `make test` sees each other name and each policy, and `make test-long` each pair. Where it is
    masks' turn and not one of `policies_of` the name, it is CKKS's, and the other way round. Names
    may be of other cases than algorithms.
    """
    shown, known = [name for name in names if name not in alike], algorithm_names()
    turns = {name: policies[place % len(policies)] for place, name in enumerate(shown)}
    for name, turn in turns.items():
        if name not in known:
            continue
        instead = {"masks": "ckks", "ckks": "masks"}.get(turn)
        if instead in policies and turn not in policies_of(name) and instead in policies_of(name):
            turns[name] = str(instead)
    return [
        pytest.param(name, policy, marks=() if turns.get(name) == policy else LONG)
        for name in names
        for policy in policies
    ]


def steady(name: str, policy: str) -> PrivacyPolicy | None:
    """Return a preset that does not mix, if the algorithm would; None: take the preset itself."""
    return subject.steadied(policy) if mixes(name, policy) else None


@dataclass
class Parties:
    """The sessions of one run: the aggregator's and, by name, all others."""

    aggregator: AggregatorSession
    others: Mapping[str, Any]

    @property
    def roster(self) -> Roster:
        return self.aggregator.context.roster

    def identity(self, name: str) -> Identity:
        """Return a party's keys."""
        session = self.aggregator if name == self.aggregator.name else self.others[name]
        me: Identity = session.context.me
        return me


@dataclass
class Recording:
    """What a run left, and what passed on the way.

    Attributes:
        said: every message released, as it was before any guard: (sender, item, message).
        watch: called with the parties after every exchange of the transport.
    """

    path: Path
    watch: Callable[[Parties], None] | None = None
    said: list[tuple[str, str, Message]] = field(default_factory=list)
    taps: list[Tap] = field(default_factory=list)
    aggregators: list[AggregatorSession] = field(default_factory=list)
    others: dict[str, Any] = field(default_factory=dict)
    run: Run | None = None
    error: Exception | None = None

    @property
    def tap(self) -> Tap:
        (tap,) = self.taps
        return tap

    @property
    def parties(self) -> Parties:
        (aggregator,) = self.aggregators
        return Parties(aggregator, self.others)

    @property
    def plan(self) -> Plan:
        return self.parties.aggregator.context.plan

    @property
    def result(self) -> dict[str, Any]:
        assert self.run is not None, "the run did not finish"
        return self.run.result

    def entries(self) -> list[dict[str, Any]]:
        """Return the entries of all ledgers of the run folder."""
        return [
            entry
            for file in sorted((self.path / "ledger").glob("*.jsonl"))
            for entry, _ in read_lines(file.read_bytes())
        ]

    def envelopes(self) -> dict[bytes, Envelope]:
        """Return the distinct envelopes that travelled, by their bytes."""
        return {data: Envelope.decode(data) for _, data in self.tap.sent}

    def wire(self) -> bytes:
        """Return every byte that travelled."""
        return b"".join(data for _, data in self.tap.sent)

    def files(self) -> Mapping[str, bytes]:
        """Return the run folder's files."""
        return {
            str(f.relative_to(self.path)): f.read_bytes()
            for f in sorted(self.path.rglob("*"))
            if f.is_file()
        }

    def payloads(self) -> list[tuple[str, Message]]:
        """Return (sender, message) of all messages but the message layer's own."""
        return [(sender, m) for sender, _, m in self.said if not isinstance(m, CONTROL)]


@contextmanager
def _recorded(recording: Recording) -> Iterator[None]:
    release, begin = Gateway.release, AggregatorSession.__init__

    def released(self: Gateway, id: str, messages: Any, recipient: str, *more: Any) -> Envelope:
        envelope = release(self, id, messages, recipient, *more)
        sender = self._context.me.party.name
        recording.said += [(sender, id, message) for message in messages]
        return envelope

    def begun(self: AggregatorSession, *arguments: Any, **named: Any) -> None:
        recording.aggregators.append(self)
        begin(self, *arguments, **named)

    with ExitStack() as stack:
        stack.enter_context(patch.object(Gateway, "release", released))
        stack.enter_context(patch.object(AggregatorSession, "__init__", begun))
        yield


def record(
    chosen: Config,
    path: Path,
    *,
    graph: Dataset | None = None,
    policy: PrivacyPolicy | None = None,
    plan: Plan | None = None,
    watch: Callable[[Parties], None] | None = None,
    fails: bool = False,
) -> Recording:
    """Run and record; with `fails`, keep the exception in place of raising it."""
    recording = Recording(path, watch)

    def connect(sessions: Mapping[str, Any]) -> Any:
        recording.taps.append(Tap(MemoryTransport(sessions)))
        recording.others.update(sessions)
        return _Watched(recording)

    federation = Federation(graph, policy=policy, config=chosen)
    with _recorded(recording):
        try:
            recording.run = federation.run(path, plan=plan, connect=connect)
        except Exception as error:
            if not fails:
                raise
            recording.error = error
    return recording


@dataclass
class _Watched:
    recording: Recording

    def exchange(self, deliveries: Any) -> Any:
        answers = self.recording.tap.exchange(deliveries)
        if self.recording.watch is not None:
            self.recording.watch(self.recording.parties)
        return answers

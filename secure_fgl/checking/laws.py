"""The laws, in the order in which they are asked; each is one question of a subject."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, cast

import numpy as np
import torch

from algorithms.tasks import Task
from algorithms.tasks.evaluation import evaluated
from algorithms.tasks.flat import Sized
from protocols.disclosures.names import Disclosure
from protocols.errors import PolicyError, Refused, SecureFglError
from protocols.evidence.ledger import read_lines
from protocols.forms import Algorithm, Form
from protocols.messages import Field
from protocols.plan.learns import RECOMPUTED
from protocols.plan.plan import FieldPlan, Item, Plan
from protocols.plan.steps import Service, Way
from protocols.policy.policy import PRESETS
from protocols.wire.envelope import Envelope
from secure_fgl.checking.killed import kill
from secure_fgl.checking.probe import Played, anew, held_out_labels, play
from secure_fgl.checking.subject import BANKS, CLEAR, CLIENTS, RATINGS, Subject
from secure_fgl.data import Graph, Ratings, read_dataset
from secure_fgl.data.loading import load
from secure_fgl.isolation.kernel import CannotIsolate
from secure_fgl.plugins.loading import making
from secure_fgl.plugins.plugin import Kind
from secure_fgl.reasons import in_plugin

__all__ = [
    "CLASSES",
    "COMMONEST",
    "LABEL",
    "LAWS",
    "LONG",
    "SHORT",
    "UNSEEN",
    "VALUE",
    "Law",
    "Outcome",
    "Presets",
    "admitted",
    "ask",
    "banks",
    "places",
    "ratings",
    "told",
    "toy",
    "undeclared",
    "unlike_made",
    "unlike_the_plan",
    "used",
]


# What every message of an algorithm must say of itself.

WIRES = {"f4", "f8", "u8", "bytes"}


def undeclared(plan: Plan, task: Task, algorithm: Algorithm[Any], at: Any) -> Iterator[str]:
    """Yield what the messages of an algorithm do not say: unit, meaning, size, bound.

    Args:
        plan: of the algorithm, under some policy.
        task: what is learnt.
        algorithm: without evaluation.
        at: which model is scored.
    """
    whole = evaluated(algorithm, task, at=at)
    (form,) = (form for form in whole.forms if form.name == plan.form)
    planned_kinds = form.messages()  # others have dimensions that this policy does not size
    for kind in dict.fromkeys(kind for form in whole.forms for kind in form.messages()):
        if not (kind.__doc__ or "").strip():
            yield f"{kind.__name__} has no docstring that says what it is"
        for field in kind.fields:
            name = f"{kind.__name__}.{field.name}"
            if not field.unit.strip() or not field.meaning.strip() or field.wire not in WIRES:
                yield f"{name} does not say its unit and meaning"
            if kind in planned_kinds and (unknown := _unsized(field, plan)):
                yield f"{name} has a size that the plan does not know ({unknown})"
    said = {kind.__name__ for kind in planned_kinds}
    if any(item.model == RECOMPUTED for item in plan.items):  # then the model never travels
        said.discard(form.exchanges[0].given[0].__name__)
    planned = {message.name for item in plan.items for message in item.messages}
    yield from (f"{name} is said and not planned" for name in sorted(said - planned))
    for item in plan.items:
        for message in item.messages:
            for facts in message.fields:
                yield from (f"{message.name}.{facts.name} {what}" for what in _lacks(facts))


def _unsized(field: Field, plan: Plan) -> str:
    """Return the dimension of a field that the plan does not size; empty if it sizes all."""
    try:
        field.sizes(plan.dims)
    except (KeyError, ValueError) as error:
        return str(error)
    return ""


def _lacks(facts: FieldPlan) -> Iterator[str]:
    if not facts.unit.strip() or not facts.meaning.strip():
        yield "has no unit or no meaning in the plan"
    if len(facts.shape) != len([d for d in facts.dims.split(", ") if d]):
        yield "has another shape than its dimensions"
    if bool(facts.bound) != bool(facts.step):
        yield "has a bound without a grid, or a grid without a bound"


# Whether what travelled is what the plan announced: sizes, counts, and nothing left over.


def used(plan: Plan) -> list[Item]:
    """Return the items that a run without refusals uses up, from which nobody is away.

    Where clusters may be cut, clients are compared only if a criterion is met, which may never be.
    """
    cuts = plan.splits.message if plan.splits is not None else ""
    compared = {i.exchange for i in plan.items if cuts in (kind.name for kind in i.messages)}
    found = [i for i in plan.items if i.part not in (Service.REFUSAL, Service.TOTALS)]
    found = [i for i in found if not i.exchange or i.exchange not in compared]
    return [i for i in found if i.way is not Way.TWO_STEPS or not plan.instead_of(i)]


def unlike_the_plan(plan: Plan, sent: Iterable[bytes]) -> Iterator[str]:
    """Yield how distinct envelopes differ from what a plan announces of a whole run."""
    per_route: dict[tuple[str, str, str], list[int]] = {}
    for data in dict.fromkeys(sent):
        header = Envelope.decode(data).header
        item = plan.item(header.item)
        if len(data) != item.bytes:
            yield f"{item.id}: {len(data)} bytes were sent, and {item.bytes} planned"
        route = (item.id, header.sender, header.recipient)
        per_route.setdefault(route, []).append(header.round)
    for (id, _, _), rounds in per_route.items():
        item = plan.item(id)
        in_rounds = [rounds.count(number) for number in range(1, plan.rounds + 1)]
        most = max(item.per_round, item.times - plan.rounds * item.per_round)
        if len(rounds) > item.times or max(in_rounds) > most:
            yield f"{item.id}: was sent more often than planned"
    seen = {id for id, _, _ in per_route}
    yield from (f"{i.id}: planned, and never sent" for i in used(plan) if i.id not in seen)


# Whether a model learns at all: a toy that can be told apart, and what a module made of itself.

COMMONEST = 0.5
_EACH, _WIDE = 40, 8


def toy() -> Graph:
    """Return a graph of five owners and two classes, alike often; the first columns say which."""
    rng = np.random.default_rng(5)
    count = CLIENTS * _EACH
    owner, y = np.repeat(np.arange(CLIENTS), _EACH), np.tile([0, 1], count // 2)
    x = rng.normal(0.0, 0.3, (count, _WIDE))
    x[np.arange(count), y] += 1.0
    pairs = np.array([(u, u + 2) for u in range(count - 2) if owner[u] == owner[u + 2]]).T
    return Graph("toy", pairs, x.astype(np.float32), y, 2, True, owner)


def unlike_made(task: Any) -> Iterator[str]:
    """Yield how the start of a task's model is not what its module makes.

    Args:
        task: of a model from outside our folder.
    """
    rng = np.random.default_rng(0)
    Sized.initial(task, rng)  # `FlatTask.initial` draws this first, and the module's seed then
    seed, twice = int(rng.integers(2**63)), []
    for _ in range(2):
        with making(seed):
            twice.append(task._build())
    one, other = (dict(module.state_dict()) for module in twice)
    yield from (
        f"{name} is made otherwise each time: draw with torch, which is seeded alike at all sites"
        for name in one
        if not torch.equal(one[name].nan_to_num(), other[name].nan_to_num())
    )
    start, place = task.initial(np.random.default_rng(0)), 0
    for name, parameter in twice[0].named_parameters():
        made = parameter.detach().reshape(-1).numpy()
        begun = start[place : place + len(made)]
        place += len(made)
        if not np.array_equal(begun[~np.isnan(made)], made[~np.isnan(made)]):
            yield f"{name} starts from something else than the module makes"


# A distinctive value and label, planted in the data, and the search for them in what was left.

VALUE, LABEL, CLASSES = 1234.56789, 4321, 5000
TEXT = re.compile(  # however many digits were printed
    rb"1234[.,][56]|1[.,]234[.,]?[56]|1\.234?[56]\d*e|(?<![0-9A-Za-z.])4321(?![0-9A-Za-z.])"
)
SHORT = [np.array([VALUE], kind).tobytes() for kind in ("<f4", ">f4")]
LONG = [np.array([VALUE], kind).tobytes() for kind in ("<f8", ">f8")] + [
    np.array([LABEL], kind).tobytes() for kind in ("<i8", ">i8")
]


def banks() -> Graph:
    """Return synthetic banks with the value and the label at every third node."""
    graph = cast(Graph, read_dataset("synthetic_banks", None, **BANKS["options"]))
    x, y = np.array(graph.x), np.array(graph.y)
    x[::3, 7] = VALUE
    y[::3] = LABEL
    return dataclasses.replace(graph, x=x, y=y, classes=CLASSES)


def ratings() -> Ratings:
    """Return ratings where every user rated the item of the label, with the value."""
    found = cast(Ratings, read_dataset("synthetic_ratings", None, **RATINGS["options"]))
    first = np.searchsorted(found.user, np.arange(CLIENTS))
    item, rating = found.item.copy(), found.rating.copy()
    item[first], rating[first] = LABEL, VALUE
    return dataclasses.replace(found, item=item, rating=rating, items=CLASSES, highest=2000.0)


def places(everything: Mapping[str, bytes]) -> list[str]:
    """Return where the value or the label is seen, as bytes or as text.

    Args:
        everything: by name: ``wire``, for what travelled, files of a run folder, printed texts.
    """
    seen = []
    for place, data in everything.items():
        # What travels and captured rounds are megabytes of random bytes, in which four given ones
        # turn up once by chance. A leak would repeat them: the value stands in every third row.
        least = 2 if place == "wire" or place.startswith("captured/") else 1
        if place != "wire" and len(TEXT.findall(data)) >= least:
            seen.append(f"{place}: text")
        found = any(data.count(needle) >= least for needle in SHORT)
        if found or any(needle in data for needle in LONG):
            seen.append(f"{place}: bytes")
    return seen


KEPT, BROKEN, UNASKED = "OK", "FAIL", "NOT CHECKED"


class Outcome(NamedTuple):
    """How a subject stands to a law: the law's name, OK, FAIL or NOT CHECKED, and a sentence."""

    law: str
    status: str
    detail: str


class Unasked(Exception):
    """A law that cannot be asked of a subject; its text says why."""


Findings = Iterator[str]


@dataclass(frozen=True)
class Law:
    """One law.

    Attributes:
        name: as it is printed.
        asks: yields what is wrong.
        kept: what a subject that keeps it is like.
        kinds: whom it is asked of.
    """

    name: str
    asks: Callable[[Subject], Findings]
    kept: str
    kinds: frozenset[Kind] = frozenset(Kind)


Presets = dict[str, str]
"""By preset: the form that it admits, or why it admits none, with ``no: `` before it."""


def admitted(subject: Subject) -> Presets:
    """Return what every preset says to a plan of this subject."""
    found = {}
    for name in PRESETS:
        try:
            found[name] = f"form {subject.preset(name).plan().form}"
        except PolicyError as error:
            found[name] = f"no: {error.what} {error.why}".strip()
    return found


def _plans(subject: Subject) -> Findings:
    if all(text.startswith("no: ") for text in admitted(subject).values()):
        yield "no preset admits it; the table above says why"


def _fields(subject: Subject) -> Findings:
    for name, text in admitted(subject).items():
        if text.startswith("form "):
            probe = subject.preset(name)
            task, algorithm = probe.build()
            at = probe.config.evaluation.at
            yield from undeclared(probe.plan(), task, algorithm, at)


def _runs(subject: Subject) -> Findings:
    played = subject.played()
    if not (found := played.run.verify()).ok:
        yield f"its evidence does not hold: {found.verdict}"
    yield from unlike_the_plan(played.plan, played.sent)


def _repeats(subject: Subject) -> Findings:
    again = play(subject.probe(CLEAR), subject.place("again"))
    yield from _unlike(subject.played(), again)


def _policies(subject: Subject) -> Findings:
    for policy in ("masks", "he"):
        try:
            other = subject.played(policy)
        except PolicyError as error:
            raise Unasked(f"{policy} does not admit it: {error.what}") from error
        closed = {i.disclosure for i in other.plan.items if not i.unsafe}
        if closed & {Disclosure.SIMILARITY, Disclosure.WEIGHTED_SUM}:
            raise Unasked("ciphertexts' noise moves cosines and weights by a step of their grid")
        if other.plan.form != subject.played().plan.form:
            raise Unasked(f"{policy} admits another form than {CLEAR}")
        yield from (f"{policy}: {text}" for text in _unlike(subject.played(), other, answers=False))


def _memory(subject: Subject) -> Findings:
    fresh = play(subject.probe(CLEAR), subject.place("anew"), wraps=(anew,))
    yield from _unlike(subject.played(), fresh)


def _held_out(subject: Subject) -> Findings:
    probe = subject.probe(CLEAR)
    probe.changes = (held_out_labels,)
    other = play(probe, subject.place("held-out"))
    yield from (text for text in _unlike(subject.played(), other, metrics=False))


def _planted(subject: Subject) -> Findings:
    if not subject.generated:
        raise Unasked("values are planted in generated data, and it runs on other data")
    rated = subject.config(CLEAR).data.name == "synthetic_ratings"
    probe = subject.probe("masks", data=ratings() if rated else banks())
    try:
        played = play(probe, subject.place("planted"))
    except SecureFglError as error:
        raise Unasked(f"it does not train on the planted values: {reason(error)}") from error
    files = {str(f.relative_to(played.run.path)): f.read_bytes() for f in _files(played)}
    everything = {"wire": b"".join(played.sent), "printed": played.printed.encode(), **files}
    yield from (f"a value of a record stands in {p}" for p in places(everything))


def _files(played: Played) -> list[Path]:
    return [file for file in sorted(played.run.path.rglob("*")) if file.is_file()]


def _clipping(subject: Subject) -> Findings:
    played = subject.played()
    cut: dict[str, int] = {}
    for client in played.plan.clients:
        for entry, _ in read_lines(played.run.folder.read(f"ledger/{client}.jsonl")):
            if entry["kind"] == "release" and entry.get("clipped"):
                cut[entry["item"]] = cut.get(entry["item"], 0) + 1
    for item, times in sorted(cut.items()):
        yield (
            f"{item}: {times} messages held more than the policy's clip lets through, and were "
            "cut: a scale may be missing, or steps are too large"
        )


def _resumes(subject: Subject) -> Findings:
    whole = subject.played()
    out = subject.place("killed")
    probe = subject.probe(CLEAR)
    if probe.policy.document() != subject.preset(CLEAR).policy.document():
        raise Unasked("it mixes records, and mixtures are drawn from the operating system")
    if not kill(probe.config, subject.plugins, out, at=max(1, 2 * whole.messages // 3)):
        yield "a process that was to be killed in the middle of a run ended before"
        return
    resumed = play(probe, out, resume=True)
    yield from _unlike(whole, resumed, answers=False)


_LONG, _ABOVE = 40, 0.1
"""Rounds of the toy that can be told apart, and how much better than its commonest class."""


def _learns(subject: Subject) -> Findings:
    if not subject.generated or subject.config(CLEAR).data.name != "synthetic_banks":
        raise Unasked("the toy is of nodes, and this is for data of another kind")
    longer = {"algorithm": {**subject.config(CLEAR).algorithm.model_dump(), "rounds": _LONG}}
    played = play(subject.probe(CLEAR, data=toy(), **longer), subject.place("toy"))
    metrics = played.run.metrics
    reached, least = metrics.get("test_accuracy"), COMMONEST + _ABOVE
    if reached is None or reached < least or not metrics["best_round"]:
        yield (
            f"on a toy whose features name the class it ends at {reached or 0:.2f} of test records "
            f"after {_LONG} rounds; the commonest class is {COMMONEST:.2f}: parameters may start "
            "at 0, or a step changes nothing"
        )


def _starts(subject: Subject) -> Findings:
    task, _ = subject.probe(CLEAR).build()
    with subject.plugins.in_use():
        yield from unlike_made(task)


def _isolated(subject: Subject) -> Findings:
    probe = subject.probe(CLEAR, isolate=True)
    try:
        other = play(probe, subject.place("isolated"))
    except CannotIsolate as error:
        raise Unasked(error.what) from error
    yield from _unlike(subject.played(), other, answers=False)


def _shape(subject: Subject) -> Findings:
    probe = subject.preset(CLEAR)
    task, _ = probe.build()
    with subject.plugins.in_use():
        loaded = load(probe.config, task)
    if loaded.whole is None:
        return
    from secure_fgl.data import published_shape, shape_of

    with subject.plugins.in_use():
        said = published_shape(probe.config.data.name, probe.config.data.options)
    for name, here, there in zip(said._fields, said, shape_of(loaded.whole[0]), strict=True):
        if here != there:
            yield f"describe says {name} = {here}, and what load gives has {there}"


def _unlike(one: Played, other: Played, *, answers: bool = True, metrics: bool = True) -> Findings:
    """Yield how two runs of one seed differ."""
    before, after = one.run.result, other.run.result
    if before["model_sha256"] != after["model_sha256"]:
        yield "the model is another one"
    if metrics and before["metrics"] != after["metrics"]:
        yield "the scores are other ones"
    if answers:
        for place, (mine, theirs) in enumerate(zip(one.answers, other.answers, strict=False), 1):
            if mine != theirs:
                yield f"answer {place}, of {mine[0]!r}, is given or says something else"
                return
        if len(one.answers) != len(other.answers):
            yield "clients answered more often, or less"


def reason(error: BaseException) -> str:
    """Return what an error says; data of these runs are generated, so its text may be shown."""
    cause = error.__cause__ if isinstance(error, Refused) and error.__cause__ else error
    text = cause.what if isinstance(cause, SecureFglError) else str(cause)
    where = "; ".join(in_plugin(cause))
    return f"{type(cause).__name__}: {text}"[:300] + (f" ({where})" if where else "")


_LEARNS = frozenset({Kind.ALGORITHM, Kind.MODEL})

LAWS = (
    Law("plans", _plans, "a preset at least admits it"),
    Law("fields", _fields, "every field says unit, meaning and size", frozenset({Kind.ALGORITHM})),
    Law("shape", _shape, "describe says what load gives", frozenset({Kind.DATA})),
    Law("start", _starts, "it starts from what its module made", frozenset({Kind.MODEL})),
    Law("learns", _learns, "it learns what a toy's features say", _LEARNS),
    Law("runs", _runs, "two rounds end, the evidence holds, what left is what was planned"),
    Law("repeats", _repeats, "the same seed gives the same bits"),
    Law("policies", _policies, "the same model in clear, under masks and encrypted", _LEARNS),
    Law("memory", _memory, "it remembers in site.memory alone", _LEARNS),
    Law("held-out", _held_out, "labels that train nowhere move no message", _LEARNS),
    Law("planted", _planted, "no value of a record stands in what was left", _LEARNS),
    Law("clipping", _clipping, "nothing that was said had to be cut", _LEARNS),
    Law("resume", _resumes, "a run that was killed ends with the same bits", _LEARNS),
    Law("isolation", _isolated, "it answers without keys, network and files, the same bits"),
)


def ask(law: Law, subject: Subject) -> Outcome:
    """Ask one law of a subject. An error of the plug-in is a broken law, with its text."""
    try:
        found = list(dict.fromkeys(law.asks(subject)))
    except Unasked as error:
        return Outcome(law.name, UNASKED, str(error))
    except Exception as error:
        return Outcome(law.name, BROKEN, reason(error))
    more = f"; and {len(found) - 3} more" if len(found) > 3 else ""
    return Outcome(law.name, BROKEN if found else KEPT, "; ".join(found[:3]) + more or law.kept)


# What a subject's messages disclose, from its plan, and what no law can find.

Rows = Iterator[tuple[str, str]]

UNSEEN = {
    "false meanings": "What a field means, nobody but a reader of the file can tell. A record "
    "that is written into the low digits of a sum's field, or into one client's share of it, "
    "looks like a change of the model: every law above is kept.",
    "wide bounds": "Whether a field needs the room that it declares. A scale that is declared and "
    "not used lets one client move a total by as much more; compare the largest number that was "
    "said with the bound, above.",
    "later rounds": "Code that waits: for a later round, another site, larger or real data, "
    "another policy. The laws look at two rounds of generated data and at five clients.",
    "the rest of the file": "What it does while it is imported, and at the aggregator. There it "
    "runs beside keys and network; the rule on its text is a list, and no protection from whoever "
    "means to get round it.",
    "time and size": "How long an answer takes, how much memory, and whether it comes at all.",
    "what totals tell": "What a total that is disclosed as planned says of single records: run "
    "it, then: secure-fgl audit attack RUN --plugin FILE.",
}
"""By a short name, what no law can find; the leaks that tests plant show it."""


def told(subject: Subject, presets: Presets) -> Rows:
    """Yield label and text of what every message of the algorithm's own discloses, and to whom."""
    policy = next((name for name, text in presets.items() if text.startswith("form ")), None)
    if policy is None:
        return
    probe = subject.preset(policy)
    plan, (task, algorithm) = probe.plan(), probe.build()
    whole = evaluated(
        algorithm,
        task,
        at=probe.config.evaluation.at,
        told=probe.config.evaluation.told,
    )
    form = next(form for form in whole.forms if form.name == plan.form)
    own = {kind.__name__ for kind in (form.plain or form).messages()}
    largest = _largest(subject)
    yield "under", f"{policy}, form {plan.form}; its own messages alone"
    for item in plan.items:
        for message in item.messages:
            if message.name in own and item.exchange in {e.name for e in form.exchanges}:
                yield message.name, _route(item)
                for field in message.fields:
                    said = largest.get((message.name, field.name))
                    yield f"  .{field.name}", _field(field, said)
                yield from ((f"  {role}", f"learns {what}") for role, what in item.learns.items())
    yield from _not_sent(form, plan.items, own)


def _largest(subject: Subject) -> dict[tuple[str, str], float]:
    try:
        return subject.played().largest
    except Exception:  # the laws say what is wrong; without a run nothing was said
        return {}


def _route(item: Item) -> str:
    often = f"{item.per_round} a round" if item.per_round else f"{item.times} in the run"
    way = f"{item.disclosure}, {item.sender} -> {item.recipient}, {often}"
    return f"{way}: {item.disclosure.meaning} ({item.id})"


def _field(field: FieldPlan, said: float | None) -> str:
    shape = f"[{','.join(map(str, field.shape))}]" if field.shape else ""
    text = f"{field.dtype}{shape}, {field.unit}: {field.meaning}"
    if field.bound:
        text += f"; one client says at most {float(field.bound):.4g}"
        text += f", and said {said:.2g} at most here" if said is not None else ""
    return text


def _not_sent(form: Form[Any], items: tuple[Item, ...], own: set[str]) -> Rows:
    """Yield the model where clients compute it themselves, so that it never travels."""
    if any(item.model == RECOMPUTED for item in items):
        name = form.exchanges[0].given[0].__name__
        if name in own:
            yield name, "not sent: every client computes it from totals that it checks"

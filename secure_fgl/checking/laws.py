"""The laws, in the order in which they are asked; each is one question of a subject."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from protocols.disclosures.names import Disclosure
from protocols.errors import PolicyError, Refused, SecureFglError
from protocols.evidence.ledger import read_lines
from protocols.policy.policy import PRESETS
from secure_fgl.checking import planted
from secure_fgl.checking.anew import anew
from secure_fgl.checking.changed import held_out_labels
from secure_fgl.checking.fields import undeclared
from secure_fgl.checking.killed import kill
from secure_fgl.checking.learning import COMMONEST, toy, unlike_made
from secure_fgl.checking.probe import Played, play
from secure_fgl.checking.subject import CLEAR, Subject
from secure_fgl.checking.traffic import unlike_the_plan
from secure_fgl.data.loading import load
from secure_fgl.isolation.kernel import CannotIsolate
from secure_fgl.plugins.plugin import Kind
from secure_fgl.reasons import in_plugin

__all__ = ["LAWS", "Law", "Outcome", "Presets", "admitted", "ask"]

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
    probe = subject.probe("masks", data=planted.ratings() if rated else planted.banks())
    try:
        played = play(probe, subject.place("planted"))
    except SecureFglError as error:
        raise Unasked(f"it does not train on the planted values: {reason(error)}") from error
    files = {str(f.relative_to(played.run.path)): f.read_bytes() for f in _files(played)}
    everything = {"wire": b"".join(played.sent), "printed": played.printed.encode(), **files}
    yield from (f"a value of a record stands in {p}" for p in planted.places(everything))


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

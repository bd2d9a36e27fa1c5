"""Evaluation as one generic message: counts over predictions, summed like everything else.

`evaluated` wraps any algorithm so that the first kind of Ask of each round also brings back a
score (`algorithms.tasks.scores`), in the same protected vector as the round's SUM where there is
one. No number of a single client ever leaves. The aggregator picks the best round from cohort
totals and names its score with every Ask; each client that took part in it keeps its own snapshot.
Scores are numbered as they are asked for, those of lost rounds too: which of its snapshots is meant
must not depend on whether a client was away.

``at="downloaded"`` scores the model as it was just received (so the state after round t is scored
in round t + 1, and one closing Ask scores the last state); ``at="trained"`` scores it after the
client's own training, as FED-PUB and FedEgo report.

A form with a topology is scored once, after the last round, or not (`scored_once`), and with
``at="kept"`` so is every other: clients keep their own best trained models. Whoever adds up the
scores of a topology is a coordinator that learns nothing of a round.

Every form also comes without scores, behind all forms with them: for policies whose noise cannot
cover counts, or that let no metric leave. Then each client keeps that of its models that did best
on its own validation records, and the last state is the result. Where it is asked for (``told``),
such forms come with scores under each client's own noise first: two numbers in [0, 1], in place of
counts (`ToldScore`). Every client counts alike, whatever its number of records. The aggregator
reads each message's estimate, and the mean of all; which round was best rests on these, and each of
them is charged.
"""

from __future__ import annotations

import math
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Generic, Literal, TypeVar

import numpy as np

from algorithms.tasks import ClientModel, Site, Task, predictions
from algorithms.tasks.scores import Scoring
from protocols.forms import Algorithm, Exchange, Form
from protocols.messages import (
    Message,
    NoisedMessage,
    ReleasedMessage,
    SumMessage,
    bounded,
    count,
    real,
    values,
)
from protocols.rounds import Ask, Cohort, Reply, Round, RoundLost

__all__ = [
    "Finished",
    "ToldScore",
    "ToldScores",
    "ToldTotal",
    "about_site",
    "final_score",
    "heard",
    "heed",
    "is_scored_once",
    "keep_best",
    "kept_model",
    "last_model",
    "reads",
    "scored_once",
    "tell",
    "total",
]


class ToldScore(NoisedMessage):
    """How good one client's predictions are, by its own noise."""

    val: float = bounded(unit="share", meaning="how good on the client's validation records")
    test: float = bounded(unit="share", meaning="how good on the client's test records")


class ToldTotal(SumMessage):
    """What the aggregator adds up of such estimates; nobody sends it."""

    val: float = real(unit="share", meaning="sum of validation scores")
    test: float = real(unit="share", meaning="sum of test scores")
    clients: int = count(unit="client", meaning="how many were told")


class ToldScores:
    """Reads totals of `ToldScore`.

    Args:
        scoring: the task's own, which a client reads its score by.
    """

    kind = ToldScore
    dims: Mapping[str, int] = {}
    names: tuple[str, ...] = ("test_told", "val_told")

    def __init__(self, scoring: Scoring) -> None:
        self._scoring = scoring

    def of_client(self, score: SumMessage) -> ToldScore:
        """Return what one client tells of its own counts."""
        val, test = self._scoring.shares(score)
        return ToldScore(val=val, test=test)

    def added(self, said: Sequence[ToldScore]) -> ToldTotal:
        """Return the sum of what was told."""
        val, test = sum(one.val for one in said), sum(one.test for one in said)
        return ToldTotal(val=float(val), test=float(test), clients=len(said))

    def read(self, total: Any) -> dict[str, float | None]:
        """Return means over clients, with noise, brought into [0, 1]."""
        told = (("test_told", total.test), ("val_told", total.val))
        many = max(int(total.clients), 1)
        return {name: float(np.clip(value / many, 0.0, 1.0)) for name, value in told}

    def merit(self, total: Any) -> float:
        """Return the mean validation score."""
        return self.read(total)["val_told"] or 0.0

    def plausible(self, total: Any, clients: int) -> bool:
        """Tell whether no more clients told than there are; under noise any number can be."""
        return int(total.clients) <= clients


def reads(scoring: Scoring, score: SumMessage) -> Scoring | ToldScores:
    """Return what reads a total: the task's scoring, or of scores that were told its like."""
    return ToldScores(scoring) if isinstance(score, ToldTotal) else scoring


def heard(reply: Reply, scoring: Scoring | ToldScores) -> SumMessage:
    """Return the total of a reply's scores."""
    if isinstance(scoring, ToldScores):
        return scoring.added(reply.each(ToldScore))
    return reply.total(scoring.kind)


def heed(site: Site, best: int) -> None:
    """Keep the model of the best score, if it is the one scored last.

    Args:
        site: a client's.
        best: number of the best score; 0: there is none yet.
    """
    if not best:
        return
    site.memory["best"] = best
    if site.memory.get("scored", (0,))[0] == best:
        site.memory["kept"] = site.memory["scored"]


def keep_best(task: Task, model: ClientModel, site: Site) -> None:
    """Keep a model that nobody scores, unless an earlier one did better on the site's own records.

    These are the site's validation records, and nothing of it leaves. Of equals it is the later,
    so a site without such records keeps the last. One that cannot be scored is no better than any.
    """
    try:
        found = task.scoring.merit(task.score(predictions(task, model, site), site))
    except (ArithmeticError, ValueError):  # what was said of it is not refused over this
        found = None
    merit = -math.inf if found is None else found
    if merit >= site.memory.get("merit", merit):
        site.memory.update(kept=(0, model.kept()), merit=merit)


def kept_model(site: Site) -> tuple[ClientModel, int, int] | None:
    """Return what a client keeps in the end.

    Returns:
        The model; its score's number, 0 where nothing is scored; and the best score's number, as
        the aggregator named it last. The numbers differ where the client was away when the best
        one was taken. None for a client that has no model.
    """
    memory = site.memory
    if (kept := memory.get("kept", memory.get("scored"))) is None:
        return None
    number, model = kept
    return ClientModel(*model), number, memory.get("best", 0)


def last_model(site: Site) -> tuple[ClientModel, int, int] | None:
    """Return the model that was scored last, as `kept_model` returns the one that is kept.

    None where nothing is scored: of unscored models only the best one is remembered.
    """
    if (scored := site.memory.get("scored")) is None:
        return None
    number, model = scored
    return ClientModel(*model), number, site.memory.get("best", 0)


def about_site(site: Site) -> Mapping[str, Any]:
    """Return what belongs to a model of this site, as its answers left it; see `Site`."""
    found: Mapping[str, Any] = site.memory.get("about", {})
    return found


def tell(site: Site) -> None:
    """Remember what belongs to a model of this site, once."""
    if site.about is not None and "about" not in site.memory:
        site.memory["about"] = dict(site.about())


S = TypeVar("S")


class Finished(ReleasedMessage):
    """Once, after the last round: only score the model that you kept."""


def scored_once(form: Form[S], task: Task) -> Form[S]:
    """Return a form without scores with one Ask for them, to be made after the last round."""
    kind = task.scoring.kind

    def score_kept(site: Site, given: Finished) -> Message:
        found = kept_model(site)
        if found is None:  # it was in no round; a refusal would end the run that others finished
            return kind(**{f.name: _no_counts(f.sizes(task.scoring.dims)) for f in kind.fields})
        return task.score(predictions(task, found[0], site), site)

    once = Exchange("score", (Finished,), (kind,), score_kept, 0, outside=1, held_out=(kind,))
    name = form.name.removesuffix("_unscored") + "_scored_once"
    return replace(form, name=name, exchanges=(*form.exchanges, once))


def _no_counts(shape: tuple[int, ...]) -> Any:
    return np.zeros(shape, dtype=np.int64) if shape else 0


def is_scored_once(form: Form[Any]) -> bool:
    """Tell whether a form has such an Ask."""
    return any(exchange.given == (Finished,) for exchange in form.exchanges)


def final_score(cohorts: Sequence[Cohort], scoring: Scoring) -> Generator[Ask, Reply, SumMessage]:
    """Ask everybody for the score of the model it kept; return the total."""
    scores = []
    for cohort in cohorts:
        reply = yield Ask(cohort, given=Finished(), back=scoring.kind)
        scores.append(heard(reply, scoring))
    return total(scores)


def total(scores: Sequence[SumMessage]) -> SumMessage:
    """Return the sum of several cohorts' scores of one kind, at least one."""
    said = [values(score) for score in scores]
    return type(scores[0])(**{name: sum(one[name] for one in said) for name in said[0]})


At = Literal["downloaded", "trained", "kept"]


class Keep(ReleasedMessage):
    """With every Ask: which score was the best so far, and which one is asked for."""

    best: int = count(unit="score", meaning="number of the score that was best; 0: none yet")
    number: int = count(unit="score", meaning="number of the score asked for; 0: none")


class Last(ReleasedMessage):
    """Once, after the last round: only score the model, train no more."""

    best: int = count(unit="score", meaning="number of the score that was best; 0: none yet")
    number: int = count(unit="score", meaning="number of the score asked for")


@dataclass(frozen=True)
class Tracked(Generic[S]):
    """The algorithm's state with the scores so far.

    Attributes:
        state: the algorithm's own public state.
        scored: the state that the last score belongs to (``downloaded``), else None.
        scores: cohort totals, one per evaluation.
        best: index of the best validation score, the earliest among equals, but of a trained model
            before the untrained one; of the last score as long as none has a merit, as there is no
            validation record.
        best_merit: that score's merit (larger is better); None: it has none.
        best_state: the public state that scored best.
        best_number: that score's number; 0 before the first.
        asked: how many scores were asked for, those of lost rounds too.
        untrained: whether the best score is that of the state before the first round.
    """

    state: S
    scores: tuple[SumMessage, ...] = ()
    best: int = -1
    best_merit: float | None = None
    best_state: S | None = None
    best_number: int = 0
    asked: int = 0
    untrained: bool = False

    def record(
        self, score: SumMessage, merit: float | None, state: S, *, trained: bool = True
    ) -> Tracked[S]:
        """Return a new record with one more score, which belongs to `state`."""
        kept = replace(self.missed(), scores=(*self.scores, score))
        if self.best_merit is not None and not self._beaten(merit):
            return kept
        number = kept.asked
        kept = replace(kept, best=len(self.scores), best_number=number, untrained=not trained)
        return replace(kept, best_merit=merit, best_state=state)

    def _beaten(self, merit: float | None) -> bool:
        """Tell whether a score of this merit counts more than the best, which has one."""
        if merit is None or self.best_merit is None:
            return False
        return merit > self.best_merit or (self.untrained and merit == self.best_merit)

    def missed(self) -> Tracked[S]:
        """Return a new record without the score that was asked for next: its round was lost."""
        return replace(self, asked=self.asked + 1)

    @property
    def keep(self) -> Keep:
        """Name the best score so far, and the one that is asked for next."""
        return Keep(best=self.best_number, number=self.asked + 1)


def evaluated(
    algorithm: Algorithm[S], task: Task, *, at: At = "downloaded", told: bool = False
) -> Algorithm[Tracked[S]]:
    """Return any algorithm with scores in the first Ask of each round; see the module's head.

    Args:
        algorithm: its files know nothing of evaluation.
        task: scores predictions on a split.
        at: which model is scored.
        told: whether forms come with scores under clients' own noise before those without any.
    """

    def init(rng: Any) -> Tracked[S]:
        return Tracked(algorithm.init(rng))

    def score(site: Site, given: Message | None, number: int) -> SumMessage:
        model = algorithm.model(site, given)
        site.memory["scored"] = (number, model.kept())
        tell(site)
        return task.score(predictions(task, model, site), site)

    scoring, own = task.scoring, ToldScores(task.scoring)

    def told_score(site: Site, given: Message | None, number: int) -> ToldScore:
        return own.of_client(score(site, given, number))

    plain = [form for form in algorithm.forms if form.topology is None and at != "kept"]
    bare = [_wrap(form, score, scoring, at) for form in plain]
    if told:
        bare += [_wrap(form, told_score, own, at, "_told_scores") for form in plain]
    quiet = [_unscored(form, algorithm.model, task) for form in algorithm.forms]
    bare += [scored_once(f, task) for f in quiet if at == "kept" or f.topology] + quiet
    forms = tuple(replace(form, rows=task.spec.task == "rating") for form in bare)
    dims = {**algorithm.dims, **scoring.dims}
    facts = algorithm.name, algorithm.citation, init, algorithm.model, forms, dims
    return Algorithm(*facts, reduced=algorithm.reduced)


def begun(form: Form[S], state: S) -> Form[S]:
    """Return the form with the state that its rounds begin with, for clients that play them too."""
    return replace(form, start=state.state if isinstance(state, Tracked) else state)


def released(state: object) -> Message | None:
    """Return the model in an algorithm's state: the state itself, or its attribute `start`.

    An aggregator that remembers more than it hands out (an optimiser's moments) keeps the message
    it hands out first there. None: the state holds no message.
    """
    found = state if isinstance(state, Message) else getattr(state, "start", None)
    return found if isinstance(found, Message) else None


def models(state: object, cohort: Cohort) -> tuple[tuple[Cohort, Message], ...]:
    """Return who begins the next round with which model; clusters stand in its `models`."""
    one = released(state)
    return getattr(state, "models", ()) or (((cohort, one),) if one is not None else ())


def after_loss(tracked: Tracked[S], left: object) -> Tracked[S]:
    """Return the record after a lost round: `RoundLost.state` if there is one, else without it."""
    return left if isinstance(left, Tracked) else tracked.missed()


def _wrap(
    form: Form[S], score: Any, scoring: Scoring | ToldScores, at: At, name: str = ""
) -> Form[Tracked[S]]:
    first = form.exchanges[0]

    def with_score(exchange: Exchange) -> Exchange:
        def answer(site: Site, *given: Message) -> tuple[Message, ...]:
            *own, keep = given
            heed(site, keep.best)  # type: ignore[attr-defined]
            number = keep.number  # type: ignore[attr-defined]
            before = score(site, own[0], number) if at == "downloaded" else None
            said = exchange.answer(site, *own)
            messages = () if said is None else said if isinstance(said, tuple) else (said,)
            return (*messages, before if before is not None else score(site, None, number))

        given, back = (*exchange.given, Keep), (*exchange.back, kind)
        return replace(exchange, given=given, back=back, answer=answer, held_out=(kind,))

    def only_score(site: Site, *given: Message) -> Message:
        last: Any = given[-1]
        heed(site, last.best)
        found: Message = score(site, given[0], last.number)
        return found

    def last_word(site: Site, keep: Keep) -> None:
        heed(site, keep.best)

    kind = scoring.kind
    exchanges = [with_score(e) if _scored(e.given, e.back, first) else e for e in form.exchanges]
    if at == "downloaded":
        last = (*first.given, Last)
        exchanges.append(
            Exchange("evaluate", last, (kind,), only_score, 0, outside=1, held_out=(kind,))
        )
    exchanges.append(Exchange("close", (Keep,), (), last_word, per_round=0, outside=1))
    told = form.by_gradients, form.top, form.unmixed, form.holders
    made = Form(form.name + name, _round(form, scoring, at), tuple(exchanges), *told)
    return replace(made, drawn=form.drawn, plain=form, splits=form.splits)


def _unscored(form: Form[S], model: Any, task: Task) -> Form[Tracked[S]]:
    """Return a form without scores; clients keep what did best on their own validation records.

    Of equals it is the later, so a client without such records keeps the model it trained last.
    """
    first = form.exchanges[0]

    def answer(site: Site, *given: Message) -> Any:
        said = first.answer(site, *given)
        found: ClientModel = model(site, None)
        keep_best(task, found, site)
        tell(site)
        return said

    def round(tracked: Tracked[S], cohort: Cohort) -> Round[Tracked[S]]:
        state = yield from form.round(tracked.state, cohort)
        return replace(tracked, state=state)

    told = form.by_gradients, form.top, form.unmixed, form.holders
    exchanges = (replace(first, answer=answer), *form.exchanges[1:])
    made = Form(f"{form.name}_unscored", round, exchanges, *told)
    made = replace(made, drawn=form.drawn, plain=form, splits=form.splits)
    return replace(made, topology=form.topology)


def _round(form: Form[S], scoring: Scoring | ToldScores, at: At) -> Any:
    first = form.exchanges[0]

    def round(tracked: Tracked[S], cohort: Cohort) -> Round[Tracked[S]]:
        scores: list[SumMessage] = []
        state = yield from _scoring(
            form.round(tracked.state, cohort), first, (tracked.keep, scoring), scores
        )
        scored, found = tracked.state if at == "downloaded" else state, total(scores)
        begun = at != "downloaded" or tracked.asked > 0
        noted = tracked.record(found, scoring.merit(found), scored, trained=begun)
        return replace(noted, state=state)

    return round


def _scored(given: Sequence[type[Message]], back: Sequence[type[Message]], first: Exchange) -> bool:
    """Tell whether an Ask is a form's first one, whatever else is handed out with it."""
    return tuple(given[: len(first.given)]) == first.given and set(back) == set(first.back)


def _scoring(
    inner: Round[S],
    first: Exchange,
    with_it: tuple[Keep, Scoring | ToldScores],
    scores: list[SumMessage],
) -> Generator[Ask, Reply, S]:
    """Play a round; every Ask of the scored kind (one per cluster) also brings a score back."""
    keep, scoring = with_it
    try:
        ask = next(inner)
        while True:
            scored = _scored(ask.given_kinds, ask.wanted, first)
            if scored:
                ask = replace(ask, given=(*ask.handed, keep), back=(*ask.wanted, scoring.kind))
            try:
                reply = yield ask
            except RoundLost as lost:
                ask = inner.throw(lost)  # the algorithm may end with what was opened before
                continue
            if scored:
                scores.append(heard(reply, scoring))
            ask = inner.send(reply)
    except StopIteration as stop:
        state: S = stop.value
        return state


def closing(
    tracked: Tracked[S], cohorts: Sequence[Cohort], scoring: Scoring, *, at: At, form: Form[Any]
) -> Round[Tracked[S]]:
    """After the last round: score the last state if it was not, and say which one to keep.

    Where nothing was or is to be scored nothing is to close. All clients are in one of `cohorts`.
    """
    if is_scored_once(form):
        found = yield from final_score(cohorts, scoring)
        return tracked.record(found, scoring.merit(found), tracked.state)
    if not tracked.scores:
        return tracked
    pairs = [pair for cohort in cohorts for pair in models(tracked.state, cohort)]
    # Parts that the last round cut are still one until it is over; they have one model.
    asked = list({id(part.begun): (part.begun, model) for part, model in pairs}.values())
    if at == "downloaded" and asked:
        last = Last(best=tracked.best_number, number=tracked.asked + 1)
        scored, scores = reads(scoring, tracked.scores[-1]), list[SumMessage]()
        for members, model in asked:
            reply = yield Ask(members, given=(model, last), back=scored.kind)
            scores.append(heard(reply, scored))
        found = total(scores)
        tracked = tracked.record(found, scored.merit(found), tracked.state)
    for cohort in cohorts:
        yield Ask(cohort, given=Keep(best=tracked.best_number, number=0))
    return tracked

"""Evaluation as one generic message: counts over predictions, summed like everything else.

`evaluated` wraps any algorithm so that the first kind of Ask of each round also brings back a
score (`algorithms.scores`), in the same protected vector as the round's SUM where there is one. No
number of a single client ever leaves. The aggregator picks the best round from cohort totals and
names its score with every Ask; each client that took part in it keeps its own snapshot. Scores are
numbered as they are asked for, those of lost rounds too: which of its snapshots is meant must not
depend on whether a client was away.

``at="downloaded"`` scores the model as it was just received (so the state after round t is scored
in round t + 1, and one closing Ask scores the last state); ``at="trained"`` scores it after the
client's own training, as FED-PUB and FedEgo report.

Every form also comes without scores, behind all forms with them: for policies whose noise cannot
cover counts, or that let no metric leave. Then nothing is scored and the last state is the result.
"""

from __future__ import annotations

import math
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Generic, Literal, TypeVar

from algorithms.scores import Scoring
from algorithms.tasks import Task
from algorithms.tasks.client_model import ClientModel, predictions
from algorithms.tasks.site import Site
from protocols.forms import Algorithm, Exchange, Form
from protocols.messages import Message, ReleasedMessage, SumMessage, count, values
from protocols.rounds import Ask, Cohort, Reply, Round, RoundLost

S = TypeVar("S")
At = Literal["downloaded", "trained"]


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
        best: index of the best validation score, the earliest among equals.
        best_merit: that score's merit (larger is better).
        best_state: the public state that scored best.
        best_number: that score's number; 0 before the first.
        asked: how many scores were asked for, those of lost rounds too.
    """

    state: S
    scores: tuple[SumMessage, ...] = ()
    best: int = -1
    best_merit: float = -math.inf
    best_state: S | None = None
    best_number: int = 0
    asked: int = 0

    def record(self, score: SumMessage, merit: float, state: S) -> Tracked[S]:
        """Return a new record with one more score, which belongs to `state`."""
        kept = replace(self.missed(), scores=(*self.scores, score))
        if self.best >= 0 and not merit > self.best_merit:
            return kept
        kept = replace(kept, best=len(self.scores), best_number=kept.asked)
        return replace(kept, best_merit=merit, best_state=state)

    def missed(self) -> Tracked[S]:
        """Return a new record without the score that was asked for next: its round was lost."""
        return replace(self, asked=self.asked + 1)

    @property
    def keep(self) -> Keep:
        """Name the best score so far, and the one that is asked for next."""
        return Keep(best=self.best_number, number=self.asked + 1)


def evaluated(
    algorithm: Algorithm[S], task: Task, *, at: At = "downloaded"
) -> Algorithm[Tracked[S]]:
    """Return any algorithm with scores by `task` in the first Ask of each round; see above."""

    def init(rng: Any) -> Tracked[S]:
        return Tracked(algorithm.init(rng))

    def score(site: Site, given: Message | None, number: int) -> SumMessage:
        model = algorithm.model(site, given)
        site.memory["scored"] = (number, model.kept())
        _tell(site)
        return task.score(predictions(task, model, site), site)

    scoring = task.scoring
    scored = tuple(_wrap(form, score, scoring, at) for form in algorithm.forms)
    bare = (*scored, *(_unscored(form, algorithm.model) for form in algorithm.forms))
    forms = tuple(replace(form, rows=task.spec.task == "rating") for form in bare)
    dims = {**algorithm.dims, **scoring.dims}
    return Algorithm(algorithm.name, algorithm.citation, init, algorithm.model, forms, dims)


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


def after_loss(tracked: Tracked[S], left: object) -> Tracked[S]:
    """Return the record after a lost round: `RoundLost.state` if there is one, else without it."""
    return left if isinstance(left, Tracked) else tracked.missed()


def heed(site: Site, keep: Keep | Last) -> None:
    """At the client: keep the model of the best score, if it is the one scored last."""
    if not keep.best:
        return
    site.memory["best"] = keep.best
    if site.memory.get("scored", (0,))[0] == keep.best:
        site.memory["kept"] = site.memory["scored"]


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


def about_site(site: Site) -> Mapping[str, Any]:
    """Return what belongs to a model of this site, as its answers left it; see `Site`."""
    found: Mapping[str, Any] = site.memory.get("about", {})
    return found


def _tell(site: Site) -> None:
    if site.about is not None and "about" not in site.memory:
        site.memory["about"] = dict(site.about())


def _wrap(form: Form[S], score: Any, scoring: Scoring, at: At) -> Form[Tracked[S]]:
    first = form.exchanges[0]

    def with_score(exchange: Exchange) -> Exchange:
        def answer(site: Site, *given: Message) -> tuple[Message, ...]:
            *own, keep = given
            heed(site, keep)  # type: ignore[arg-type]
            number = keep.number  # type: ignore[attr-defined]
            before = score(site, own[0], number) if at == "downloaded" else None
            said = exchange.answer(site, *own)
            messages = () if said is None else said if isinstance(said, tuple) else (said,)
            return (*messages, before if before is not None else score(site, None, number))

        given, back = (*exchange.given, Keep), (*exchange.back, kind)
        return replace(exchange, given=given, back=back, answer=answer, held_out=(kind,))

    def only_score(site: Site, *given: Message) -> SumMessage:
        last: Any = given[-1]
        heed(site, last)
        found: SumMessage = score(site, given[0], last.number)
        return found

    def last_word(site: Site, keep: Keep) -> None:
        heed(site, keep)

    kind = scoring.kind
    exchanges = [with_score(e) if _scored(e.given, e.back, first) else e for e in form.exchanges]
    if at == "downloaded":
        last = (*first.given, Last)
        exchanges.append(
            Exchange("evaluate", last, (kind,), only_score, 0, outside=1, held_out=(kind,))
        )
    exchanges.append(Exchange("close", (Keep,), (), last_word, per_round=0, outside=1))
    told = form.by_gradients, form.top, form.unmixed, form.holders
    made = Form(form.name, _round(form, scoring, at), tuple(exchanges), *told)
    return replace(made, drawn=form.drawn, plain=form)


def _unscored(form: Form[S], model: Any) -> Form[Tracked[S]]:
    """Return a form without scores; clients keep the model that they trained last."""
    first = form.exchanges[0]

    def answer(site: Site, *given: Message) -> Any:
        said = first.answer(site, *given)
        site.memory["kept"] = (0, model(site, None).kept())
        _tell(site)
        return said

    def round(tracked: Tracked[S], cohort: Cohort) -> Round[Tracked[S]]:
        state = yield from form.round(tracked.state, cohort)
        return replace(tracked, state=state)

    told = form.by_gradients, form.top, form.unmixed, form.holders
    exchanges = (replace(first, answer=answer), *form.exchanges[1:])
    return Form(f"{form.name}_unscored", round, exchanges, *told, drawn=form.drawn, plain=form)


def _round(form: Form[S], scoring: Scoring, at: At) -> Any:
    first = form.exchanges[0]

    def round(tracked: Tracked[S], cohort: Cohort) -> Round[Tracked[S]]:
        scores: list[SumMessage] = []
        state = yield from _scoring(
            form.round(tracked.state, cohort), first, (tracked.keep, scoring.kind), scores
        )
        scored = tracked.state if at == "downloaded" else state
        found = total(scores)
        return replace(tracked.record(found, scoring.merit(found), scored), state=state)

    return round


def _scored(given: Sequence[type[Message]], back: Sequence[type[Message]], first: Exchange) -> bool:
    """Tell whether an Ask is a form's first one, whatever else is handed out with it."""
    return tuple(given[: len(first.given)]) == first.given and set(back) == set(first.back)


def _scoring(
    inner: Round[S],
    first: Exchange,
    with_it: tuple[Keep, type[SumMessage]],
    scores: list[SumMessage],
) -> Generator[Ask, Reply, S]:
    """Play a round; every Ask of the scored kind (one per cluster) also brings a score back."""
    keep, kind = with_it
    try:
        ask = next(inner)
        while True:
            scored = _scored(ask.given_kinds, ask.wanted, first)
            if scored:
                ask = replace(ask, given=(*ask.handed, keep), back=(*ask.wanted, kind))
            try:
                reply = yield ask
            except RoundLost as lost:
                ask = inner.throw(lost)  # the algorithm may end with what was opened before
                continue
            if scored:
                scores.append(reply.total(kind))
            ask = inner.send(reply)
    except StopIteration as stop:
        state: S = stop.value
        return state


def total(scores: Sequence[SumMessage]) -> SumMessage:
    """Return the sum of several cohorts' scores of one kind, at least one."""
    said = [values(score) for score in scores]
    return type(scores[0])(**{name: sum(one[name] for one in said) for name in said[0]})


def closing(
    tracked: Tracked[S], cohorts: Sequence[Cohort], scoring: Scoring, *, at: At
) -> Round[Tracked[S]]:
    """After the last round: score the last state if it was not, and say which one to keep.

    Where nothing was scored there is nothing to close. All clients are in one of `cohorts`.
    """
    if not tracked.scores:
        return tracked
    if at == "downloaded" and (model := released(tracked.state)) is not None:
        last = Last(best=tracked.best_number, number=tracked.asked + 1)
        scores: list[SumMessage] = []
        for cohort in cohorts:
            reply = yield Ask(cohort, given=(model, last), back=scoring.kind)
            scores.append(reply.total(scoring.kind))
        found = total(scores)
        tracked = tracked.record(found, scoring.merit(found), tracked.state)
    for cohort in cohorts:
        yield Ask(cohort, given=Keep(best=tracked.best_number, number=0))
    return tracked

"""Evaluation as one generic message: counts of correct predictions, summed like everything else.

`evaluated` wraps any algorithm so that the first kind of Ask of each round also brings back a
`Score`, in the same protected vector as the round's SUM where there is one. No number of a single
client ever leaves. The aggregator picks the best round from cohort totals and says *keep* with the
next Ask; each client keeps its own snapshot.

``at="downloaded"`` scores the model as it was just received (so the state after round t is scored
in round t + 1, and one closing Ask scores the last state); ``at="trained"`` scores it after the
client's own training, as FED-PUB and FedEgo report.

Every form also comes without scores, behind all forms with them: for policies whose noise cannot
cover counts, or that let no metric leave. Then nothing is scored and the last state is the result.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Generic, Literal, TypeVar

from algorithms.site import Site
from algorithms.tasks import Task
from protocols.forms import Algorithm, Exchange, Form
from protocols.messages import Message, ReleasedMessage, SumMessage, count
from protocols.rounds import Ask, Cohort, Reply, Round

S = TypeVar("S")
At = Literal["downloaded", "trained"]


class Keep(ReleasedMessage):
    """With every Ask: was the model scored last the best so far?"""

    keep: int = count(unit="0 or 1", meaning="1: keep the snapshot scored last")


class Last(ReleasedMessage):
    """Once, after the last round: only score the model, train no more."""

    keep: int = count(unit="0 or 1", meaning="1: keep the snapshot scored last")


class Score(SumMessage):
    """How many of this client's validation and test records are predicted correctly."""

    val_correct: int = count(unit="record", meaning="correct on validation records")
    val_count: int = count(unit="record", meaning="validation records")
    test_correct: int = count(unit="record", meaning="correct on test records")
    test_count: int = count(unit="record", meaning="test records")
    test_share: int = count(unit="1/10000", meaning="this client's test accuracy, for their mean")
    test_clients: int = count(unit="client", meaning="1 if this client has test records")


@dataclass(frozen=True)
class Tracked(Generic[S]):
    """The algorithm's state with the scores so far.

    Attributes:
        state: the algorithm's own public state.
        scored: the state that the last score belongs to (``downloaded``), else None.
        scores: cohort totals, one per evaluation.
        best: index of the best validation score, the earliest among equals.
        best_state: the public state that scored best.
    """

    state: S
    scores: tuple[Score, ...] = ()
    best: int = -1
    best_state: S | None = None

    def record(self, score: Score, state: S) -> Tracked[S]:
        """Return a new record with one more score, which belongs to `state`."""
        best, best_state = self.best, self.best_state
        if best < 0 or accuracy(score, "val") > accuracy(self.scores[best], "val"):
            best, best_state = len(self.scores), state
        return replace(self, scores=(*self.scores, score), best=best, best_state=best_state)

    @property
    def keep(self) -> Keep:
        """Tell whether the score taken last is the best so far."""
        return Keep(keep=int(0 <= self.best == len(self.scores) - 1))


def accuracy(score: Score, split: Literal["val", "test"]) -> float:
    """Return the pooled accuracy of a cohort total; NaN-free: 0 where there are no records."""
    correct, total = (
        (score.val_correct, score.val_count)
        if split == "val"
        else (score.test_correct, score.test_count)
    )
    return correct / total if total else 0.0


def client_mean(score: Score) -> float:
    """Return the unweighted mean of the clients' test accuracies, to 1/10000."""
    return score.test_share / 10_000 / max(score.test_clients, 1)


def plausible(score: Score, clients: int) -> bool:
    """Tell whether honest clients can have this total. Encryption gives no range proof."""
    return (
        score.val_correct <= score.val_count
        and score.test_correct <= score.test_count
        and score.test_clients <= clients
        and score.test_share <= 10_000 * score.test_clients
    )


def evaluated(
    algorithm: Algorithm[S], task: Task, *, at: At = "downloaded"
) -> Algorithm[Tracked[S]]:
    """Return `algorithm` with scores in the first Ask of each round.

    Args:
        algorithm: any algorithm; its files know nothing of evaluation.
        task: scores predictions on a split.
        at: which model is scored, see the module's head.
    """

    def init(rng: Any) -> Tracked[S]:
        return Tracked(algorithm.init(rng))

    def score(site: Site, given: Message | None) -> Score:
        predictions = algorithm.predict(site, given)
        val, test = (task.score(predictions, site, split) for split in ("val", "test"))
        site.memory["scored"] = (given, {k: v for k, v in site.memory.items() if k not in _OWN})
        return Score(
            val_correct=val[0],
            val_count=val[1],
            test_correct=test[0],
            test_count=test[1],
            test_share=round(10_000 * test[0] / test[1]) if test[1] else 0,
            test_clients=int(test[1] > 0),
        )

    scored = tuple(_wrap(form, score, at) for form in algorithm.forms)
    forms = (*scored, *(_unscored(form) for form in algorithm.forms))
    return Algorithm(
        algorithm.name, algorithm.citation, init, algorithm.predict, forms, algorithm.dims
    )


_OWN = ("scored", "kept")  # memory of this file, not of the algorithm


def heed(site: Site, keep: Keep | Last) -> None:
    """At the client: keep the snapshot scored last if it is the best so far."""
    if keep.keep and "scored" in site.memory:
        site.memory["kept"] = site.memory["scored"]


def _wrap(form: Form[S], score: Any, at: At) -> Form[Tracked[S]]:
    first = form.exchanges[0]

    def answer(site: Site, *given: Message) -> tuple[Message, ...]:
        *own, keep = given
        heed(site, keep)  # type: ignore[arg-type]
        before = score(site, own[0]) if at == "downloaded" else None
        said = first.answer(site, *own)
        messages = () if said is None else said if isinstance(said, tuple) else (said,)
        return (*messages, before if before is not None else score(site, None))

    def only_score(site: Site, *given: Message) -> Score:
        heed(site, given[-1])  # type: ignore[arg-type]
        found: Score = score(site, given[0])
        return found

    def last_word(site: Site, keep: Keep) -> None:
        heed(site, keep)

    given = (*first.given, Keep)
    exchanges = [
        replace(first, given=given, back=(*first.back, Score), answer=answer),
        *form.exchanges[1:],
    ]
    if at == "downloaded":
        last = (*first.given, Last)
        exchanges.append(Exchange("evaluate", last, (Score,), only_score, per_round=0, outside=1))
    exchanges.append(Exchange("close", (Keep,), (), last_word, per_round=0, outside=1))
    return Form(form.name, _round(form, at), tuple(exchanges))


def _unscored(form: Form[S]) -> Form[Tracked[S]]:
    def round(tracked: Tracked[S], cohort: Cohort) -> Round[Tracked[S]]:
        state = yield from form.round(tracked.state, cohort)
        return replace(tracked, state=state)

    return Form(f"{form.name}_unscored", round, form.exchanges)


def _round(form: Form[S], at: At) -> Any:
    first = form.exchanges[0].given

    def round(tracked: Tracked[S], cohort: Cohort) -> Round[Tracked[S]]:
        scores: list[Score] = []
        inner = _scoring(form.round(tracked.state, cohort), first, tracked.keep, scores)
        state = yield from inner
        scored = tracked.state if at == "downloaded" else state
        return replace(tracked.record(total(scores), scored), state=state)

    return round


def _scoring(
    inner: Round[S], first: tuple[type[Message], ...], keep: Keep, scores: list[Score]
) -> Generator[Ask, Reply, S]:
    """Play a round; every Ask of the scored kind (one per cluster) also brings a Score back."""
    try:
        ask = next(inner)
        while True:
            scored = ask.given_kinds == first
            if scored:
                ask = replace(ask, given=(*ask.handed, keep), back=(*ask.wanted, Score))
            reply = yield ask
            if scored:
                scores.append(reply.total(Score))
            ask = inner.send(reply)
    except StopIteration as stop:
        state: S = stop.value
        return state


def total(scores: Sequence[Score]) -> Score:
    """Return the sum of several cohorts' scores."""
    sums = {f.name: sum(getattr(score, f.name) for score in scores) for f in Score.fields}
    return Score(**sums)


def closing(tracked: Tracked[S], cohort: Cohort, *, at: At) -> Round[Tracked[S]]:
    """After the last round: score the last state if it was not, and say which one to keep.

    Where nothing was scored there is nothing to close.
    """
    if not tracked.scores:
        return tracked
    if at == "downloaded" and isinstance(tracked.state, Message):
        last = Last(keep=tracked.keep.keep)
        reply = yield Ask(cohort, given=(tracked.state, last), back=Score)
        tracked = tracked.record(reply.total(Score), tracked.state)
    yield Ask(cohort, given=tracked.keep)
    return tracked

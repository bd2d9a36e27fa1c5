"""One sum of scores after the last round, of the models that clients chose and kept themselves.

For forms with a topology: whoever adds up scores is a coordinator that learns nothing of a round.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import replace
from typing import Any, TypeVar

import numpy as np

from algorithms.scores import Scoring
from algorithms.scores.kept import kept_model
from algorithms.scores.told import heard
from algorithms.tasks import Task
from algorithms.tasks.client_model import predictions
from algorithms.tasks.site import Site
from protocols.forms import Exchange, Form
from protocols.messages import Message, ReleasedMessage, SumMessage, values
from protocols.rounds import Ask, Cohort, Reply

__all__ = ["Finished", "final_score", "is_scored_once", "scored_once", "total"]

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

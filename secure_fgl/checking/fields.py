"""What every message of an algorithm must say of itself."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from algorithms.tasks import Task
from algorithms.tasks.evaluation import evaluated
from protocols.forms import Algorithm
from protocols.messages import Field
from protocols.plan.models import RECOMPUTED
from protocols.plan.plan import FieldPlan, Plan

__all__ = ["undeclared"]

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

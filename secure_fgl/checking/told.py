"""What a subject's messages disclose, from its plan, and what no law can find."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from algorithms.tasks.evaluation import evaluated
from protocols.forms import Form
from protocols.plan.models import RECOMPUTED
from protocols.plan.plan import FieldPlan, Item
from secure_fgl.checking.laws import Presets
from secure_fgl.checking.subject import Subject

__all__ = ["UNSEEN", "told"]

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

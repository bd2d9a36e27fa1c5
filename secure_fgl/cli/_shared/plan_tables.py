"""A plan as people read it: what travels, who learns what, the budget, the warnings."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING

from audits.findings.limitations import named, of_warning
from audits.report.words import size
from secure_fgl.cli._shared.output import cell, console, grid, print_json, print_pairs, say
from secure_fgl.run.naming import client_names

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.table import Table

    from protocols.plan.plan import Item, MessagePlan, Plan
    from secure_fgl.calibration import Row
    from secure_fgl.federation import Federation

# --- A plan as people read it: what travels, who learns what, the budget, the warnings ---

MOST_NAMED = 20  # clients that are named one by one
WIDEST = 32  # characters kept together in the first column, so that 80 columns suffice


def print_plan(plan: Plan, *, stderr: bool) -> None:
    """Print a plan; every fact of it is shown, whatever the width."""
    out = console(stderr=stderr)
    print_pairs(_head(plan), stderr=stderr)
    for table in (_items(plan), _fields(plan), _learns(plan)):
        out.print(table)
    warnings = [("warning", named(text, of_warning(text))) for text in plan.warnings]
    print_pairs([("budget", plan.budget), *_tried(plan), *warnings], stderr=stderr)


def say_first(plan: Plan, federation: Federation) -> None:
    """Say on stderr, before the plan, what would be lost in it: what runs is not what it is called.

    That is an algorithm whose options leave out what it is called after, cohorts that cannot be
    drawn, and what was given and is not used.
    """
    from protocols.plan.learns import reduced, runs_as

    less = [f"{runs_as(plan.algorithm)}{text}" for text in reduced(plan)]
    drawn = plan.drawn
    all_asked = [f"Cohorts: {drawn.words}"] if drawn is not None and drawn.cohorts == 1 else []
    for text in (*less, *all_asked, *federation.unused(), *_large(federation)):
        say(f"{text}.", style="bold yellow")


def _large(federation: Federation) -> Iterator[str]:
    """Say so where no step can be right: Adam's move every weight by about the step's size."""
    model = federation.config.model
    if model.optimiser in {"adam", "adamw"} and model.lr is not None and model.lr >= _LARGE:
        yield (
            f"model.lr is {model.lr:g}: each step of {model.optimiser} moves every weight by about "
            "so much, and models of such steps learn nothing; usual are 0.001 to 0.1"
        )


_LARGE = 1.0
"""A step of Adam's of this size is larger than the weights themselves."""


def _tried(plan: Plan) -> list[tuple[str, str]]:
    """Return the word beside the plan's epsilons: nothing was sent that could be attacked."""
    noised = any(item.noise is not None for item in plan.items) or plan.training is not None
    told = "untested: epsilon is arithmetic so far; audit attack holds a run's noise against it"
    return [("by attack", told)] if noised else []


def _head(plan: Plan) -> list[tuple[str, str]]:
    data, names = plan.data, plan.clients
    return [
        ("plan", f"{plan.algorithm}, form {plan.form}"),
        ("rounds", str(plan.rounds)),
        ("clients", f"{len(names)} ({who(names)}); smallest cohort {plan.smallest_cohort}"),
        *([("withstands", plan.withstands_words)] if plan.withstands_words else []),
        (
            "data",
            f"{data.name}{' (SYNTHETIC DATA)' if data.synthetic else ''}: {data.task} task, "
            f"{data.features} features, {data.classes} classes, at most {data.records} training "
            "records at a client",
        ),
        *([("edges", data.edges)] if data.edges else []),
        ("persons", plan.floor_words),
        ("policy", ", ".join((plan.policy, *protections(plan)))),
        ("policy says", _settings(plan)),
        *_rounding(plan),
        ("policy digest", plan.policy_digest),
        ("plan digest", plan.digest),
        ("a client sends", f"at most {size(plan.bytes_up())} in the whole run, all items counted"),
        *([("cohorts", plan.drawn.words)] if plan.drawn else []),
        *_others(plan),
        *_models(plan),
        *_plugins(plan),
    ]


def _settings(plan: Plan) -> str:
    """Return every setting of the policy but its chains, which stand beside the items."""
    told = (f"{name} {value}" for name, value in plan.policy_fields.items() if name != "rules")
    return "; ".join(told)


def _rounding(plan: Plan) -> list[tuple[str, str]]:
    """Say how much of an update the grid of sums takes away, and of whose update more."""
    from protocols.disclosures.names import Disclosure
    from protocols.plan.steps import Step

    sent = plan.all_of(Disclosure.SUM, Step.UP)
    fields = [f for item in sent for message in item.messages for f in message.fields if f.step]
    if not fields:
        return []
    share = max(float(field.step) / float(field.bound) for field in fields)
    return [
        (
            "rounding",
            f"by at most {100 * share:.2g} % of the largest update; k times as much of the update "
            f"of a site with 1/k of the {plan.data.records} records that the bound allows",
        )
    ]


def who(names: Sequence[str]) -> str:
    """Name all clients that have names of their own; of many, or numbered ones, the ends."""
    numbered = names == client_names(len(names))
    if len(names) == 1 or not (numbered or len(names) > MOST_NAMED):
        return ", ".join(names)
    return f"{names[0]} to {names[-1]}"


def protections(plan: Plan) -> list[str]:
    """Say what protects sums, what is compared and what is weighed, as far as there is any."""
    from protocols.disclosures.names import Disclosure
    from protocols.plan.learns import schemes

    found = [f"{said} under {scheme}" for said, scheme in schemes(plan.items).items()]
    if not found or any(item.disclosure is Disclosure.SUM for item in plan.items):
        found.insert(0, f"sums under {_protection(plan)}")
    return found


def _models(plan: Plan) -> Iterator[tuple[str, str]]:
    """Say how clients see to the models that they are handed."""
    words = {
        "recomputed": "each client computes them itself, from totals that only clients can check",
        "bounded": "a client refuses one that moved further than honest clients can move it",
        "as sent": "a client takes what it is sent",
    }
    for how, text in words.items():
        items = [item.id for item in plan.items if item.model == how]
        if items:
            yield "models", f"{how}: {text} ({', '.join(items)})"


def _plugins(plan: Plan) -> Iterator[tuple[str, str]]:
    """Name every plug-in with its kind and the digest of its file."""
    from protocols.plan.plan import plugin_of

    for entry, digest in plan.plugins.items():
        kind, name = plugin_of(entry) or ("", entry)
        yield "plug-in", f"{name}, {kind} from outside the package: trusted code, sha256 {digest}"


def _others(plan: Plan) -> Iterator[tuple[str, str]]:
    """Say what key authority, witness and relay take and give, where it is not little."""
    from protocols.plan.learns import schemes
    from protocols.plan.plan import at_most

    def whole(item: Item) -> int:
        return item.bytes * item.times

    computing = ("key_authority", "witness") if schemes(plan.items) else ()
    for role in (*computing, "relay", "tag_server", "matcher"):
        taken = at_most((i for i in plan.items if i.recipient == role), whole)
        given = at_most((i for i in plan.items if i.sender == role), whole)
        if taken:
            text = f"takes at most {size(taken)} in the whole run, gives at most {size(given)}"
            yield role.replace("_", " "), text


def _protection(plan: Plan) -> str:
    """Say what sums are under: masks, encryption, both, or nothing."""
    from protocols.disclosures.sum.disclosure import masked as sums_masked

    masked = sums_masked(plan.items)
    if plan.scheme == "none":
        return "masks" if masked else "no protection"
    return f"masks inside {plan.scheme}" if masked else plan.scheme


def _items(plan: Plan) -> Table:
    """List what travels: the route, the messages, their guards, sizes and counts."""
    table = grid(["Item, from -> to", "Content, guards", ">Bytes", ">Round", ">Run"])
    longest = max(len(text) for item in plan.items for text in (item.id, _route(item)))
    table.columns[0].no_wrap = longest <= WIDEST
    for item in plan.items:
        names = ", ".join(message.name for message in item.messages)
        flag = "UNSAFE " if item.unsafe else ""
        table.add_row(
            cell(f"{item.id}\n{_route(item)}" + (f"\n  {item.way}" if item.way else "")),
            cell(
                f"{item.disclosure}: {names}\n{flag}{' > '.join(item.guards)}",
                "bold red" if item.unsafe else "",
            ),
            f"{item.bytes:,}",
            str(item.per_round),
            str(item.times),
        )
    table.caption = (
        "Bytes: the largest envelope, header and signature included. Round, Run: how often at most "
        "between one sender and one recipient. Of one Ask's items that say 'one answer' and 'two "
        "steps', either these or those leave for one sum."
    )
    table.caption_justify = "left"
    return table


def _route(item: Item) -> str:
    return f"  {item.sender} -> {item.recipient}"


def _fields(plan: Plan) -> Table:
    """List the fields of each message; a message that several items hold is shown once."""
    table = grid(["Message.field", "Type, unit", "Meaning"])
    held: dict[MessagePlan, list[str]] = {}
    for item in plan.items:
        for message in item.messages:
            held.setdefault(message, []).append(item.id)
    names = [message.name for message in held]
    for message, items in held.items():
        # The same name with other sizes: say which is where.
        where = f" (in {', '.join(items)})" if names.count(message.name) > 1 else ""
        for field in message.fields:
            shape = f"[{','.join(map(str, field.shape))}]" if field.shape else ""
            bounds = f" (bound {field.bound}, step {field.step})" if field.bound else ""
            table.add_row(
                cell(f"{message.name}.{field.name}{shape}"),
                cell(f"{field.dtype}, {field.unit}"),
                cell(f"{field.meaning}{bounds}{where}"),
            )
        if not message.fields:
            table.add_row(cell(message.name), "", cell("no fields: its arrival is all it says"))
    return table


def _learns(plan: Plan) -> Table:
    """Gather what the items tell each role; equal sentences are told once."""
    told: dict[str, dict[str, list[str]]] = {}
    for item in plan.items:
        for role, what in item.learns.items():
            told.setdefault(role, {}).setdefault(what, []).append(item.id)
    table = grid(["Who", "Learns", "From"])
    for role, sentences in told.items():
        for number, (what, items) in enumerate(sentences.items()):
            table.add_row(
                cell("" if number else role),
                cell(what),
                cell(", ".join(items)),
            )
    return table


# --- The table of ``plan --calibrate``: noise to signal for each epsilon of a run ---


def print_calibration(rows: Sequence[Row], *, as_json: bool) -> None:
    """Print the rows on stdout."""
    if as_json:
        plain = [{k: v if v != math.inf else None for k, v in asdict(row).items()} for row in rows]
        print_json(json.dumps(plain, indent=2))
        return
    table = grid([">ε of the run", "Message", ">Numbers", ">Noise : signal", ">Clients", ">Bytes"])
    for row in rows:
        if not row.item:
            table.add_row(f"{row.epsilon:g}", cell("no noise that can be drawn"), *("-",) * 4)
            continue
        facts = f"{row.coordinates:,}", f"{row.ratio:.3g}", f"{row.clients:,}", f"{row.bytes:,}"
        table.add_row(f"{row.epsilon:g}", cell(row.item), *facts)
    console(stderr=False).print(table)
    say(
        "Noise : signal: expected error of the mean over the plan's clients, in units of the clip. "
        "Clients: from so many on it is below the clip; fewer learn nothing from one message. "
        "Labels of every ε: unit client, replace-one, local, scope run, the policy's delta, no "
        "credit for sampling."
    )

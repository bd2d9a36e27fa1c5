"""An account as people read it: the sentence to quote, the labels, and every number's table."""

from __future__ import annotations

from decimal import ROUND_UP, Context, Decimal
from typing import TYPE_CHECKING

from secure_fgl.cli._shared.output import cell, console, grid, print_pairs, say

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.table import Table

    from audits.accounting.models import Account, BudgetFacts, Epsilon, Records
    from audits.report.sections import Labelled
    from secure_fgl.store.sides.budget_totals import BudgetTotal

MOST_CLIENTS = 20  # rows; the others stand in the JSON
COLOUR = {"FALSIFIED": "bold red", "NOT FALSIFIED": "green", "NO CLAIM": "yellow"}
_SHORT = Context(prec=4, rounding=ROUND_UP)


def shown(epsilon: Epsilon | None) -> str:
    """Return an epsilon with four figures, never smaller than it is."""
    if epsilon is None:
        return "-"
    if epsilon.value == "infinity":
        return "∞"
    return f"{_SHORT.create_decimal(Decimal(epsilon.value)):f}"


def print_account(found: Account) -> None:
    """Print an account on stdout; of many clients only those that spent most."""
    out = console(stderr=False)
    say(found.statement, style="bold", stderr=False)
    if found.records is not None:
        say(found.records.statement, style="bold", stderr=False)
    for counted in found.counted:
        say(counted.statement, style="bold", stderr=False)
    if found.order is not None:
        say(found.order.statement, style="bold", stderr=False)
    out.print()
    print_pairs(_head(found))
    out.print()
    tables = [_uncovered(found)]
    if found.noise:
        print_pairs(_labels(found))
        tables += [_noise(found), _scopes(found), _items(found), _views(found), _engines(found)]
        tables += [_shares(found), _clients(found)]
    if found.records is not None:
        tables += [_engines(found.records), _trained(found.records)]
    for table in tables:
        if table.row_count:
            out.print(table)
    print_pairs([("note", note) for note in found.notes])


def print_words(found: Sequence[Labelled]) -> None:
    """Print beside each epsilon what attacks say of it; nothing where there is none."""
    if not found:
        return
    table = grid(["ε of what", ">ε", "By attack", ">At least", ">Ceiling"])
    for row in found:
        said = row.empirical
        table.add_row(
            cell(row.what), shown(row.epsilon), said.word, said.lower_bound or "-",
            said.ceiling or "-",
        )  # fmt: skip
    table.caption = (
        "By attack: what secure-fgl audit attack proved, by experiment. Ceiling: what a perfect "
        "attack could have proved with as many trials."
    )
    table.caption_justify = "left"
    console(stderr=False).print(table)


def print_totals(found: Sequence[BudgetTotal]) -> None:
    """Print budgets on stdout: what all runs together spent of each site's data."""
    table = grid(["Site", "Data set", "Unit", ">Runs", ">ε", ">δ", "Extends"])
    for one in found:
        held = f"{one.held_to} lines that others signed" if one.held_to else "not compared"
        table.add_row(
            cell(one.site), cell(one.dataset), one.unit, str(one.runs), one.epsilon,
            one.delta, cell(held),
        )  # fmt: skip
    table.caption = (
        "Of all runs together that reserved from the budget; what was reserved counts as spent."
    )
    table.caption_justify = "left"
    console(stderr=False).print(table)


def judge(found: Account) -> int:
    """Say on stderr what is wrong, and return the gravest exit code (5, 6, 7, 0)."""
    from secure_fgl.errors import BROKEN, BUDGET, DRIFT, OK

    say(f"Verdict: {found.verdict}. Evidence: {found.evidence}.", style=COLOUR[found.verdict])
    for reason in found.reasons:
        say(f"FALSIFIED: {reason}.", style="bold red")
    for engine in found.engines:
        if engine.differs:
            say(f"{engine.engine} differs from our own by more than a tenth.", style="yellow")
    if set(found.failed) - {"plan_vs_ledger"}:
        return BROKEN
    if found.failed:  # something left that was not planned; the record of it may hold
        return DRIFT
    return BUDGET if found.reasons else OK


def _head(found: Account) -> list[tuple[str, str]]:
    return [
        ("run", found.run),
        ("made by", f"{found.algorithm} under the policy {found.policy}"),
        ("plan digest", found.plan_digest),
        ("evidence", found.evidence),
        ("verdict", found.verdict),
        *(("because", reason) for reason in found.reasons),
    ]


def _labels(found: Account) -> list[tuple[str, str]]:
    """List the six labels; what a table's row assumes besides stands in the row."""
    target = found.target
    if target is None:
        return []
    return [
        ("target", f"ε = {shown(target)}"),
        ("unit", target.unit),
        ("adjacency", target.adjacency),
        ("model", target.model),
        ("scope", f"{target.scope}, unless a table says otherwise"),
        ("delta", target.delta),
        *(("assumes", text) for text in target.assumptions),
    ]


def _uncovered(found: Account) -> Table:
    table = grid(["Not covered", "Why"])
    for entry in found.not_covered:
        table.add_row(cell(entry.item), cell(entry.why))
    return table


def _noise(found: Account) -> Table:
    table = grid(["Noise of one client", ">σ or scale", ">Δ₂", ">Entries", ">Honest", ">Times"])
    for noise in found.noise:
        table.add_row(
            cell(f"{noise.mechanism} in {', '.join(noise.items)}"),
            f"{float(noise.sigma):,.1f}" if noise.sigma else f"ε {noise.pure}",
            f"{float(noise.l2):,.1f}",
            f"{noise.coordinates:,}",
            str(noise.honest),
            str(noise.releases),
        )
    table.caption = (
        "σ and the sensitivity Δ₂ in grid steps, after rounding. Honest: shares that are counted "
        "on. Times: vectors of one client in the run."
    )
    table.caption_justify = "left"
    return table


def _scopes(found: Account) -> Table:
    table = grid(["ε per", ">planned", ">recorded"])
    for row in found.scopes:
        table.add_row(cell(row.scope), shown(row.planned), shown(row.recorded))
    table.caption = "Recorded: of the client that spent most."
    table.caption_justify = "left"
    return table


def _items(found: Account) -> Table:
    table = grid(["Item", ">Planned", ">Recorded", ">Opened", ">Survivors", ">ε of one"])
    for row in found.items:
        counts = (row.planned, row.recorded, row.opened, row.survivors)
        table.add_row(cell(row.item), *map(str, counts), shown(row.epsilon))
    table.caption = (
        "Planned, recorded: vectors of the busiest client. Opened: totals. Survivors: clients in "
        "the smallest of them."
    )
    table.caption_justify = "left"
    return table


def _views(found: Account) -> Table:
    table = grid(["Against", ">ε", "Assumes besides"])
    for row in found.views:
        table.add_row(cell(row.view), shown(row.epsilon), cell(row.epsilon.assumptions[-1]))
    return table


def _engines(found: Account | Records) -> Table:
    table = grid(["Arithmetic", ">ε", ">Ratio", "Note"])
    for row in found.engines:
        table.add_row(cell(row.engine), shown(row.epsilon), row.ratio, cell(row.note))
    return table


def _shares(found: Account) -> Table:
    table = grid([">Missing or colluding", ">Honest shares", ">ε as planned"])
    for row in found.honest_share:
        table.add_row(str(row.missing), str(row.honest), shown(row.epsilon))
    return table


def _clients(found: Account) -> Table:
    """List the clients, the one that spent most first."""
    ordered = sorted(found.clients, key=lambda c: (-c.epsilon.as_float(), c.name))
    table = grid(["Client", ">Vectors", ">Opened", ">Honest", ">ε", "Budget of its data set"])
    for client in ordered[:MOST_CLIENTS]:
        table.add_row(
            cell(client.name),
            str(client.releases),
            str(client.opened),
            str(client.fewest_honest),
            shown(client.epsilon),
            cell(_budget(client.budget)),
        )
    if len(ordered) > MOST_CLIENTS:
        rest = len(ordered) - MOST_CLIENTS
        table.caption = f"{rest} more clients, none of which spent more: --format json."
        table.caption_justify = "left"
    return table


def _trained(found: Records) -> Table:
    """List what training spent of one record, client by client."""
    ordered = sorted(found.clients, key=lambda c: (-c.epsilon.as_float(), c.name))
    unit = found.recorded.unit
    table = grid([f"Client, for one {unit}", ">Rounds", ">Gradients", ">ε", "Budget"])
    for client in ordered[:MOST_CLIENTS]:
        counts = (str(client.rounds), str(client.steps))
        table.add_row(
            cell(client.name), *counts, shown(client.epsilon), cell(_budget(client.budget))
        )
    table.caption = (
        f"Each gradient clipped to {found.clip}, noise multiplier {found.noise}, batches at rate "
        f"{found.rate}; {found.steps} gradients planned for δ = {found.recorded.delta}."
    )
    table.caption_justify = "left"
    return table


def _budget(found: BudgetFacts | None) -> str:
    if found is None:
        return "none recorded"
    spent, cap = shown(found.epsilon), shown(found.cap)
    return f"ε {spent} of {cap} in {found.entries} runs on {found.dataset}"

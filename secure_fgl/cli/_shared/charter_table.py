"""A charter on two pages: who, what is in force, the policy in words, what leaves, who learns what.

Everything else that was signed stands in ``charter show --format json``, and every single message
and field in ``secure-fgl plan``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import yaml
from cryptography.hazmat.primitives import hashes
from cryptography.x509 import load_pem_x509_certificate

from audits.findings.limitations import named, of_warning
from audits.report.words import role, size
from protocols.plan.plan import at_most
from protocols.plan.steps import Service, Step
from secure_fgl.cli._shared.charters import facts_of, helpers, models_of, parties
from secure_fgl.cli._shared.output import cell, console, grid, print_pairs, say
from secure_fgl.cli._shared.plan_tables import protections, who

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from protocols.plan.plan import Item, Plan
    from secure_fgl.charters.broker import Broker
    from secure_fgl.charters.charter import Charter
    from secure_fgl.data.own import OwnSpec


def print_charter(charter: Charter) -> None:
    """Print what a party is asked to sign, on two pages at 80 columns for some six parties."""
    plan = charter.plan
    facts = facts_of(charter)
    print_pairs([(name, str(facts[name])) for name in ("run", "charter")], wrap=False)
    _parties(charter)
    _title("In force")
    print_pairs(list(_in_force(charter)))
    _title("Policy")
    used = {message.disclosure for item in plan.items for message in item.messages}
    _paragraphs(charter.policy.explain({*used, *(item.disclosure for item in plan.items)}))
    _leaves(plan)
    _title("What each role learns")
    print_pairs(list(_learns(plan)))
    _title("To know before signing")
    warnings = [("warning", named(text, of_warning(text))) for text in plan.warnings]
    print_pairs([("budget", plan.budget), *warnings])
    _title("Models after the run")
    print_pairs(list(models_of(charter).items()))
    if charter.spec is not None:
        _title("spec.yaml")
        print_pairs([*_spec(charter.spec), ("digest", charter.spec.digest)])
    say("All of it: --format json; each message and field: secure-fgl plan", stderr=False)


def _title(text: str) -> None:
    say(text, style="bold", stderr=False)


def _paragraphs(text: str) -> None:
    """Print lines of prose, folded at words whatever they are printed to."""
    out = console(stderr=False)
    for line in filter(None, text.split("\n")):
        out.print(cell(line), overflow="fold")


def _parties(charter: Charter) -> None:
    table = grid(["Party, role", "Organisation", "Fingerprint", "Answer"], title="Parties")
    for party in parties(charter):
        table.add_row(
            cell(f"{party['name']}\n{party['role']}"),
            cell(party["organisation"] or "-"),
            cell(party["fingerprint"]),
            cell("\n".join(filter(None, (party["said"], party["reason"])))),
        )
    console(stderr=False).print(table)


def _in_force(charter: Charter) -> Iterator[tuple[str, str]]:
    """Yield what the run goes by: the plan's facts, and the settings beside it."""
    plan, data = charter.plan, charter.plan.data
    settings: dict[str, Any] = yaml.safe_load(charter.config.agreed_text())
    yield "algorithm", _flat({**settings["algorithm"], "form": plan.form})
    yield "model", _flat(settings["model"])
    yield "clients", f"{who(plan.clients)}; no total is of fewer than {plan.smallest_cohort}"
    if plan.withstands_words:
        yield "withstands", plan.withstands_words
    if charter.organisations:
        inside = ", ".join(helpers(charter)) or "none"
        yield "own clients", f"of aggregator, witness and tag servers: {inside}"
    synthetic = " (SYNTHETIC DATA)" if data.synthetic else ""
    counts = f"{data.features} features, {data.classes} classes"
    yield (
        "data",
        (
            f"{data.name}{synthetic}: {data.task} task, {counts}, at most {data.records} training "
            f"records at a client; features {charter.config.data.features}"
        ),
    )
    yield "shared out", _shared_out(charter, settings["data"])
    if data.edges:
        yield "edges", data.edges
    yield "persons", plan.floor_words
    yield "protection", "; ".join(protections(plan))
    yield "answers", "computed at each site, isolated from its keys, files and network"
    yield "scored", f"the {charter.config.evaluation.at} model; seed {charter.config.seed}"
    yield "a client sends", f"at most {size(plan.bytes_up())} in the whole run"
    yield from (("plug-in", f"{entry}, sha256 {digest}") for entry, digest in plan.plugins.items())
    yield "broker", _broker(charter.broker)
    yield "programs", ", ".join(f"{n} {v or 'any'}" for n, v in sorted(charter.versions.items()))
    yield "policy digest", plan.policy_digest
    yield "plan digest", plan.digest


def _broker(broker: Broker) -> str:
    """Return the servers, under which root they are known, and how long an exchange may take."""
    root = "certificate: one that systems know"
    if broker.root:
        digest = load_pem_x509_certificate(broker.root.encode()).fingerprint(hashes.SHA256()).hex()
        root = f"root certificate sha256 {digest}"
    return f"{', '.join(broker.urls)}; {root}; an exchange takes at most {broker.deadline} s"


def _shared_out(charter: Charter, data: Mapping[str, Any]) -> str:
    if charter.spec is not None:
        return "one site's own tables a client, read and split as spec.yaml says"
    split = ", ".join(f"{share:g}" for share in data["split"])
    return f"partition {data['partition']['name']}, split {split}"


def _leaves(plan: Plan) -> None:
    """List what clients send by what it is: what depends on data one by one, all else in a line."""
    table = grid(["A client sends", "Messages", "Under", ">Times", ">Bytes"], title="What leaves")
    rest: dict[str, list[Item]] = {}
    for item in (one for one in plan.items if one.sender == "client" and one.times):
        if item.disclosure in _CARRIERS:
            rest.setdefault(_CARRIERS[item.disclosure], []).append(item)
            continue
        names = ", ".join(message.name for message in item.messages)
        guards = ", ".join(guard.partition("(")[0] for guard in item.guards)
        flag = "UNSAFE " if item.unsafe else ""
        table.add_row(
            cell(f"{item.id}, of its data"),
            cell(f"{names}, to {role(item.recipient)}"),
            cell(f"{flag}{guards}", "bold red" if item.unsafe else ""),
            str(item.times),
            f"{item.bytes:,}",
        )
    for what, items in rest.items():
        kinds = {message.name for item in items for message in item.messages}
        under = dict.fromkeys(guard.partition("(")[0] for item in items for guard in item.guards)
        table.add_row(
            cell(what),
            cell(f"{len(kinds)} kinds"),
            cell(", ".join(under)),
            str(at_most(items, lambda item: item.times)),
            f"{max(item.bytes for item in items):,}",
        )
    console(stderr=False).print(table)


_CARRIERS = {
    "SEALED": "keys, shares, votes and receipts",
    "RELEASED": "what follows from totals",
    "PUBLIC": "public keys",
}
"""Disclosures whose items hold nothing that is made from a client's records."""


def _learns(plan: Plan) -> Iterator[tuple[str, str]]:
    """Yield each role with all that items tell it, each sentence once."""
    told: dict[str, dict[str, None]] = {}
    for item in plan.items:
        for viewer, what in item.learns.items():
            sentences = told.setdefault(viewer, {})
            if not (item.part in _SERVICES or item.step in _BESIDE):
                sentences[what] = None
    for viewer, sentences in told.items():
        if sentences:
            yield viewer.replace("_", " "), "; ".join(sentences)
    yield "all of them", "keys, shares, receipts, refusals, and who is there"


_SERVICES = {Service.KEYS, Service.PAIRS, Service.DRAW, Service.HEADS, Service.REFUSAL}
_BESIDE = {
    *(Step.SURVIVORS, Step.VOTE, Step.VOTES, Step.SHARES, Step.ALL_HERE, Step.SELF_SHARES),
    *(Step.ACK, Step.REFUSE),
}
"""Parts and steps in which nothing travels that is made from a client's records."""


def _spec(spec: OwnSpec) -> Iterator[tuple[str, str]]:
    """Yield what the sites agreed on about their tables, without what says nothing."""
    said = spec.model_dump(mode="json")
    shown = {n: v for n, v in said.items() if v not in (None, False, 0, 0.0, {}, [])}
    names = [n for n in ("features", "classes", "vocabulary") if n in shown]
    yield from ((name, _plain(shown.pop(name))) for name in names)
    yield "tables", _flat(shown)


def _flat(values: Mapping[str, Any]) -> str:
    """Return settings in one line, without empty ones."""
    shown = {name: value for name, value in values.items() if value not in (None, {}, [])}
    name = shown.pop("name", None)
    told = [f"{key.replace('_', ' ')} {_plain(value)}" for key, value in shown.items()]
    return ", ".join([*([str(name)] if name else []), *told])


def _plain(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list):
        return ", ".join(map(str, value))
    return _flat(value) if isinstance(value, dict) else str(value)

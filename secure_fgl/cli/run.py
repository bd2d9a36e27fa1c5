"""``secure-fgl run``: train, and leave the evidence."""

from __future__ import annotations

import contextlib
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from secure_fgl.cli._shared.options import (
    CheckpointOption,
    PluginOption,
    TrackOption,
    as_settings,
)
from secure_fgl.cli._shared.verb import Format, FormatOption, Log, verb
from secure_fgl.cli.plan import ConfigArgument, SetOption

if TYPE_CHECKING:
    from protocols.plan.plan import Plan
    from secure_fgl.cli._shared.output import JsonLog
    from secure_fgl.config import Config
    from secure_fgl.federation import Federation
    from secure_fgl.store.finished_run import Run


@verb
def run(  # noqa: PLR0913, PLR0917 - a parameter an option
    config: ConfigArgument,
    out: Annotated[
        Path | None, typer.Option(metavar="RUN", help="Run folder; must not exist or be empty.")
    ] = None,
    settings: SetOption = [],  # noqa: B006 - typer's way to say "none given"; never changed
    plugins: PluginOption = [],  # noqa: B006
    plan_file: Annotated[
        Path | None, typer.Option("--plan", help="An approved plan; nothing beyond it is sent.")
    ] = None,
    approvals: Annotated[
        list[Path],
        typer.Option(metavar="FILE", help="Who approved the plan, where the policy asks for it."),
    ] = [],  # noqa: B006
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on with the run in --out, which was killed.")
    ] = False,
    track: TrackOption = [],  # noqa: B006
    checkpoint_every: CheckpointOption = None,
    log: Annotated[
        Log, typer.Option(help="Tell on stderr as text, or as one JSON object a line.")
    ] = Log.text,
    format: FormatOption = Format.table,
) -> int:
    """Train, write the run folder with every party's ledger, and report what left.

    Exits 0 when training finished, whatever the report found.
    """
    from secure_fgl.cli._shared.inputs import load_plan
    from secure_fgl.cli._shared.output import print_json
    from secure_fgl.config import Config

    configuration = Config.load(config, [*settings, *as_settings(track, checkpoint_every)])
    approved = load_plan(plan_file) if plan_file is not None else None
    # Nothing but the result may reach stdout, whatever a library likes to print.
    with contextlib.redirect_stdout(sys.stderr):
        from secure_fgl.cli._shared.output import JsonLog
        from secure_fgl.errors import UsageError
        from secure_fgl.federation import Federation
        from secure_fgl.store.run_folder import RunFolder

        federation = Federation.from_config(configuration, plugins)
        if approved is not None:
            federation.plugins.hold_to(approved)  # before anything of them is run
        wanted = federation.plan()
        if approved is not None:
            _hold_to(approved, wanted)
        if resume and out is None:
            raise UsageError("--resume needs --out, the folder of the run that was killed.")
        # Refused before the plan is shown.
        folder = RunFolder(out or federation.default_folder(), again=resume)
        federation.check_tables()
        lines, headline = JsonLog() if log is Log.json else None, federation.headline()
        _announce(approved or wanted, federation, lines, table=format is Format.table)
        options = {"resume": resume, "approvals": approvals}
        finished = _train(federation, folder.path, headline, lines, plan=approved, **options)
    if format is Format.json:
        print_json(finished.folder.read("result.json").decode())
    else:
        _summary(finished, headline)
    return 0


def _hold_to(approved: Plan, wanted: Plan) -> None:
    """Raise PlanDrift at once, before a plan that is not the approved one is shown."""
    from protocols.plan.plan import drift
    from secure_fgl.errors import PlanDrift

    if differences := drift(approved, wanted):
        raise PlanDrift(differences)


def _announce(plan: Plan, federation: Federation, lines: JsonLog | None, *, table: bool) -> None:
    from secure_fgl.cli._shared.output import say
    from secure_fgl.cli._shared.plan_tables import print_plan, say_first
    from secure_fgl.devices import told
    from secure_fgl.sites.start import NOT_SEPARATED

    if lines is not None:
        facts = {"plan": plan.digest, "policy": plan.policy, "rounds": plan.rounds}
        transport, synthetic = federation.config.transport.name, plan.data.synthetic
        lines.write("plan", **facts, transport=transport, synthetic=synthetic)
        return
    if federation.config.transport.name == "memory":
        say("SIMULATION: roles are not separated", style="bold yellow")
    else:
        say("REHEARSAL: one machine holds the keys of all roles", style="bold yellow")
        say(NOT_SEPARATED, style="bold yellow")
    if plan.data.synthetic:
        say("SYNTHETIC DATA", style="bold yellow")
    say_first(plan, federation)
    if table:
        print_plan(plan, stderr=True)
        say(f"Model settings: {federation.training()}.")
        if federation.config.device != "cpu":
            say(f"Clients train on: {told(federation.config)}.")


def _train(
    federation: Federation, folder: Path, headline: str, lines: JsonLog | None, **options: Any
) -> Run:
    """Run, and tell of its rounds and of what an interrupt left; see `Federation.run`."""
    from secure_fgl.cli._shared.output import RunProgress, say

    tell = say if lines is None else lines.note
    try:
        with RunProgress(headline) if lines is None else lines as seen:
            finished = federation.run(folder, progress=seen, tell=tell, **options)
    except KeyboardInterrupt as stopped:
        raise KeyboardInterrupt(str(stopped) or _what_is_left(folder)) from None
    if lines is not None:
        digests = {name: getattr(finished, name) for name in ("delivered_sha256", "model_sha256")}
        lines.write("end", **digests, metrics=finished.metrics)
    return finished


def _what_is_left(folder: Path) -> str:
    """Say what an interrupted run left; a ledger is closed when its head was signed."""
    ledgers = {file.stem for file in (folder / "ledger").glob("*.jsonl")}
    heads = {file.stem for file in (folder / "heads").glob("*.checkpoint")}
    if not ledgers:
        return "Nothing was sent."
    state = "The ledgers were closed" if ledgers <= heads else "Not every ledger could be closed"
    return f"{state}; the partial run is in {folder}"


def _summary(finished: Run, headline: str) -> None:
    """Print what people want to know first; all of it stands in result.json too."""
    from audits.report.learning import ALONE, GATHERED, never_trained
    from audits.report.words import plural, size
    from secure_fgl.cli._shared.output import HEADLINES, print_pairs

    result = finished.result
    headline = "test_told" if "test_told" in result["metrics"] else headline
    pairs = [("model", _never(finished))] if never_trained(result) else []
    pairs.append((HEADLINES[headline], _quality(result, headline)))
    seen = result.get("references", {})
    for name, label in {**ALONE, **GATHERED}.items():
        if (value := seen.get(name)) is not None:
            pairs.append((label, f"{value:.4f} test, {_SEEN.get(name, _TRAINED)}"))
    pairs += _compared(result)
    if result.get("lost_rounds"):
        numbers = result["lost_rounds"]
        which = f"{plural(len(numbers), 'round')} (number {', '.join(map(str, numbers))})"
        pairs.append(("lost", f"{which}: too many clients vanished, and it was skipped"))
    if still := result.get("stood"):
        pairs.append(("stood still", _stood(finished, still)))
    if rows := _flattened(finished):
        pairs.append(("weights", f"{rows}: not the ones that {result['algorithm']} asked for"))
    up, down = size(result["bytes_up"]), size(result["bytes_down"])
    seconds = f"{result['wall_s']:.2f} s for all rounds"
    if (protection := result.get("protect_s")) is not None:  # of sites apart nobody knows it
        seconds += f", {protection:.2f} s of it outside learning (protection)"
    pairs += [
        ("clients sent", f"{up}, all together, and got {down}"),
        ("time", seconds),
        *_digests(finished),
        ("evidence", str(result["verdict"])),
        *_keys(finished),
        ("report", str(finished.path / "report" / "report.html")),
    ]
    print_pairs(pairs, wrap=False, links=["report"])


def _keys(finished: Run) -> list[tuple[str, str]]:
    """Say where keys were written outside the run folder: nobody looks for them there."""
    if not finished.folder.holds("roster.json") or (place := finished.client_models.place) is None:
        return []
    after = f"secure-fgl model forget {finished.path} destroys them"
    return [("keys", f"{place} (to clients' own models, outside the run folder; {after})")]


def _never(finished: Run) -> str:
    """Say that the model was never trained, and what to try."""
    from audits.report.learning import NEVER_TRAINED

    model = _chosen(finished).model
    step = f"a smaller model.lr (here {model.lr:g})" if model.lr else "a smaller model.lr"
    return f"{NEVER_TRAINED}. Try {step}, another data.features, or more rounds"


def _digests(finished: Run) -> list[tuple[str, str]]:
    """Name the digest of the model that is delivered, and of the last one where it is another."""
    result = finished.result
    if not (last := result["model_sha256"]):
        return [("model sha256", "none: each client has its own")]
    best, delivered = result["metrics"]["best_round"], finished.delivered_sha256
    if best is None:
        return [("model sha256", f"{last} (last)")]
    after = f"after round {best}" if best else "before training"
    if delivered == last:
        return [("model sha256", f"{last} (best, {after}; the last is the same)")]
    return [
        ("model sha256", f"{delivered} (best, {after}: the one that is scored and exported)"),
        ("last sha256", f"{last} (after the last round)"),
    ]


def _compared(result: dict[str, Any]) -> list[tuple[str, str]]:
    """Say who is ahead, and what was not compared: a figure alone may be worse than none."""
    from audits.report.learning import ON_NODES, in_words, little, not_computed, worth

    pairs = [(name, f"not computed: {why}") for name, why in not_computed(result).items()]
    if (found := worth(result)) is not None:
        pairs.append(("who is ahead", in_words(found)))
        return pairs
    if "headline" in result and result["data"]["task"] == "node":
        wanted = f"evaluation.references=[{','.join(ON_NODES)}]"
        pairs.append(("who is ahead", f"not known: nothing was compared; --set '{wanted}'"))
    if rare := little(result):
        pairs.append(("accuracy", rare))
    return pairs


_STOOD = (
    "rounds {first} to {last} at {share:.3f}, the share of the commonest class: the model gave "
    "all records, or nearly all, that class"
)


def _stood(finished: Run, still: dict[str, Any]) -> str:
    """Say where a run stood, and what to try of what was not tried in it."""
    from audits.report.learning import RARE

    chosen = _chosen(finished)
    other = [how for how in ("raw", "standard") if how != chosen.data.features]
    tries = [f"another data.features ({', '.join(other)})", "more algorithm.epochs"]
    if not chosen.model.keep_moments:
        tries.append("model.keep_moments=true")
    if still["share"] > RARE:
        tries.append("a split (column split) whose training records hold fewer of that class")
    *most, last = tries
    return f"{_STOOD.format(**still)}; try {', '.join(most)}, or {last}"


def _chosen(finished: Run) -> Config:
    """Return the configuration of a run, with all defaults written out."""
    from secure_fgl.config import Config

    return Config.of_others(finished.folder.read("config.yaml").decode("utf-8"))


def _flattened(finished: Run) -> str:
    """Say how many rows of weights were flattened (O10), as the aggregator's ledger states."""
    from audits.report.words import plural
    from protocols.evidence.ledger import read_lines

    data = finished.folder.read("ledger/aggregator.jsonl")
    told = [entry for entry, _ in read_lines(data) if entry["kind"] == "weights"]
    rows, changed = sum(e["receivers"] for e in told), sum(len(e["flattened"]) for e in told)
    return f"{changed} of {plural(rows, 'row')} flattened" if changed else ""


_TRAINED = "trained by the simulator as a reference"
_SEEN = {
    "propagation": "a site's labels run along its own edges, nothing sent",
    "local_propagation": "a site's own model run along its own edges, nothing sent",
    "logistic": "logistic regression at each site, no edges, nothing sent",
    "boosted": "boosted trees at each site, no edges, nothing sent",
    "mean": "looked up by the simulator as a reference",
    "pmf": "trained on everybody's ratings by the simulator as a reference",
    "whole_graph": "with all edges between clients, looked up by the simulator",
    "released_model": "looked up by the simulator, which holds all data",
}


def _quality(result: dict[str, Any], headline: str) -> str:
    metrics = result["metrics"]
    if metrics["best_round"] is None and result["lost_rounds"]:
        return "not measured: no round could be finished, so the model is as it began"
    if metrics["best_round"] is None:
        return "not measured: the policy lets no score leave a client"
    label = " (SYNTHETIC DATA)" if result["data"]["synthetic"] else ""
    if headline == "test_roc_auc" and metrics[headline] is None:
        from algorithms.tasks.scores import UNDEFINED

        label += f"; {UNDEFINED}"
    validation = headline.replace("test_", "val_", 1)
    binned = metrics.get(f"{headline}_error")
    after = f"after round {metrics['best_round']}" if metrics["best_round"] else "before training"
    if metrics[validation] is None:
        after += ", the last"
    close = f" ± {binned:.4f} (bins)" if binned is not None else ""
    return (
        f"{_number(metrics, headline, 'test')}{close}, "
        f"{_number(metrics, validation, 'validation')}, {after}{label}"
    )


def _number(metrics: dict[str, Any], name: str, split: str) -> str:
    if (value := metrics[name]) is not None:
        return f"{value:.4f} {split}"
    return f"undefined {split}" if "roc_auc" in name else f"no {split} records"

"""The tables on crafted models in docs/results/leakage.md: what comes back of single records.

    python benchmarks/trap_weights.py run --data DIR --out FILE
    python benchmarks/trap_weights.py show FILE

Cora, `metis_disjoint`, 5 clients, FedAvg, under every preset, three seeds; and the same with other
settings of the clients' training. Clients take the models that they are sent (a policy's
``models: as_sent``, and no bound): under the presets as they are they compute them (ADR 0029).

Attack A20 looks at a run of one round, for the crafted model that is there at once. For one that is
steered there, the same clients answer 64 rounds; not under every preset, as protected totals are
the same integers under all but one, and not under noise, which takes long to draw. `run` appends
one JSON line a row and skips what FILE holds; `show` prints Markdown.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

POLICIES = ("masks", "strict", "unsafe_plaintext", "calibrated", "pilot", "he", "ckks")
SEEDS = (1, 2, 3)
STEERED = 64
"""Rounds over which a model is steered."""
STEERED_UNDER = ("masks", "unsafe_plaintext")
Settings = dict[str, Any]
MODEL: Settings = {"hidden": 64, "lr": 0.1, "optimiser": "sgd", "dropout": 0.0}
OTHERS: dict[str, Settings] = {
    "AdamW, dropout 0.5": {"lr": 0.01, "optimiser": "adamw", "dropout": 0.5},
    "20 clients": {},
}
NAMES = ("whole", "recall", "precision", "f1")


def rows() -> Iterator[Settings]:
    """Yield policy, settings and seed of every row."""
    for seed in SEEDS:
        yield from ({"policy": policy, "what": "", "seed": seed} for policy in POLICIES)
        yield from ({"policy": "masks", "what": what, "seed": seed} for what in OTHERS)


def measure(chosen: Settings, data: str) -> Iterator[Settings]:
    """Yield what A20 found, and what comes back while a model is steered."""
    from audits.attacks import attack, trap_weights
    from audits.attacks._methods.traps import Known, one_round, steered
    from audits.attacks.trap_weights import VOLLEYS
    from protocols.policy.policy import PrivacyPolicy
    from secure_fgl.attack_inputs.materials import material
    from secure_fgl.config import Config
    from secure_fgl.federation import Federation

    clients = 20 if chosen["what"].startswith("20") else 5
    partition = {"name": "metis_disjoint", "clients": clients}
    document = {
        "algorithm": {"name": "fed_avg", "rounds": 1},
        "model": {**MODEL, **OTHERS.get(chosen["what"], {})},
        "data": {"name": "cora", "root": data, "features": "row", "partition": partition},
        "evaluation": {"references": []},
        "policy": chosen["policy"],
        "resume": False,
        "seed": chosen["seed"],
    }
    trap_weights.what_clients_take = lambda _: "as sent"
    policy = PrivacyPolicy.preset(chosen["policy"]).model_copy(update={"models": "as_sent"})
    with tempfile.TemporaryDirectory() as folder:
        document["budget"] = {"store": str(Path(folder) / "budgets")}
        federation = Federation(config=Config.parse(document), policy=policy)
        run = federation.run(Path(folder) / "run")
        found = material(run, data=Path(data))
        verdicts = [r for r in attack(found, ["A20"]).rows if r.id == "A20" and r.prior is not None]
        replica = found.replica
        if replica is None:
            raise SystemExit(found.unasked)
        rng = np.random.default_rng(chosen["seed"])
        known = Known.of(replica, rng, VOLLEYS)
        if known is None:
            raise SystemExit("there is nobody to attack")
        shots = one_round(replica, known, rng)
        guess = {name: float(getattr(known.guesses[1], name).mean()) for name in NAMES}
        if chosen["policy"] in STEERED_UNDER:
            fewer = Known.of(replica, rng, 1)
            shots += steered(replica, fewer or known, rng, STEERED)
    yield {
        "rows": [row.model_dump(mode="json") for row in verdicts],
        "targets": len(known.targets),
        "prior": guess,
        "shots": [
            {"rounds": shot.rounds, "read": float(shot.seen.read.mean())}
            | {
                side: {name: float(getattr(getattr(shot, side), name).mean()) for name in NAMES}
                for side in ("raw", "null", "seen")
            }
            for shot in shots
        ],
    }


def run(options: argparse.Namespace) -> None:
    """Run what FILE does not hold yet."""
    out, done = Path(options.out), set()
    if out.exists():
        lines = (json.loads(line) for line in out.read_text("utf-8").splitlines())
        done = {json.dumps(line["chosen"], sort_keys=True) for line in lines}
    for chosen in rows():
        if json.dumps(chosen, sort_keys=True) in done:
            continue
        for found in measure(chosen, options.data):
            with out.open("a", encoding="utf-8") as file:
                file.write(json.dumps({"chosen": chosen, **found}, sort_keys=True) + "\n")
        print(chosen, file=sys.stderr)


def show(options: argparse.Namespace) -> None:
    """Print the table of the crafted model, its verdicts, and that of the steered one."""
    lines = [json.loads(line) for line in Path(options.file).read_text("utf-8").splitlines()]
    groups: dict[tuple[str, str], list[Settings]] = {}
    for line in lines:
        groups.setdefault((line["chosen"]["policy"], line["chosen"]["what"]), []).append(line)
    heads = ("run", "word for word", "recall", "precision", "F1", "prior F1", "raw", "null", "A20")
    print(f"| {' | '.join(heads)} |\n|{'---|' * len(heads)}")
    for (policy, what), those in groups.items():
        first = [line["shots"][0] for line in those]
        cells = [
            *(_mean(s["seen"][name] for s in first) for name in NAMES),
            _mean(line["prior"]["f1"] for line in those),
            *(_mean(s[side]["whole"] for s in first) for side in ("raw", "null")),
            _verdicts(those),
        ]
        print(f"| {_label(policy, what)} | {' | '.join(cells)} |")
    after = sorted({shot["rounds"] for line in lines for shot in line["shots"][1:]})
    print(f"\n| run | {' | '.join(f'{n} rounds' for n in after)} |\n|{'---|' * (len(after) + 1)}")
    for (policy, what), those in groups.items():
        if not those[0]["shots"][1:]:
            continue
        cells = []
        for rounds in after:
            shots = [s for line in those for s in line["shots"][1:] if s["rounds"] == rounds]
            cells.append(_mean(s["seen"]["whole"] for s in shots))
        print(f"| {_label(policy, what)} | {' | '.join(cells)} |")


def _label(policy: str, what: str) -> str:
    return f"{policy}, {what}" if what else policy


def _mean(values: Iterable[float]) -> str:
    found = np.array(list(values))
    return f"{found.mean():.3f} ± {found.std():.3f}"


def _verdicts(lines: list[Settings]) -> str:
    """Return the verdicts of A20's two rows on the model that is there at once, over the seeds."""
    found = []
    for name in ("records", "words"):
        rows = (row for line in lines for row in line["rows"] if row["what"].endswith(name))
        found.append(f"{name} {'/'.join(dict.fromkeys(row['verdict'] for row in rows))}")
    return ", ".join(found)


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    verbs = parser.add_subparsers(required=True)
    runs = verbs.add_parser("run")
    runs.add_argument("--data", required=True)
    runs.add_argument("--out", required=True)
    runs.set_defaults(do=run)
    shows = verbs.add_parser("show")
    shows.add_argument("file")
    shows.set_defaults(do=show)
    options = parser.parse_args()
    options.do(options)


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    main()

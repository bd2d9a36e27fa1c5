"""The tables of docs/results/leakage.md: what the messages of every algorithm still reveal.

    python benchmarks/leakage.py run TABLE --data DIR --out FILE [--rounds 3] [--seed 1]
    python benchmarks/leakage.py catalogue --data DIR --out FILE [--only fed_avg,fed_pub]
    python benchmarks/leakage.py show FILE
    python benchmarks/leakage.py plot FILE --out SVG
    python benchmarks/leakage.py page FILE docs/results/leakage-catalogue.md

`run` and `catalogue` append one JSON line a run, and skip what FILE holds already; `show` prints
Markdown, and which cells of the catalogue were not run; `plot` draws them as a heat map, `page`
writes the catalogue's tables into its page.
Tables: algorithms (every algorithm under every policy), cohorts (sums over more and more clients):
Cora, `metis_disjoint`; the attacks look at all captured rounds (``default``). The catalogue has all
algorithms and policies (`_leakage_cells`), all attacks under ``quick``; what they need is looked at
(A12: models that are handed out, A16: ledgers alone), under ``strict`` what needs no capture; a
rehearsal of ``strict`` has the rest.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks._leakage_cells import REHEARSED, Cell, cells, document
from benchmarks._leakage_table import GRAVITY, tables, worst_of

if TYPE_CHECKING:
    from audits.attacks import AttackReport

ALGORITHMS = ("local", "fed_avg", "fed_prox", "fed_per", "apfl", "fed_gate", "apfl_gate")
POLICIES = ("unsafe_plaintext", "pilot", "strict")
COHORTS = (3, 4, 5, 10, 20, 50)
BELOW = "<!-- made by benchmarks/leakage.py page -->"
Settings = dict[str, Any]
_CONSTANT = {"name", "question", "profile", "metric", "seed", "null_side", "exact"}
MODEL: Settings = {"hidden": 64, "lr": 0.1, "optimiser": "sgd", "dropout": 0.0}


def rows(table: str) -> Iterator[tuple[str, Settings]]:
    """Yield label, and what differs from the common settings."""
    if table == "algorithms":
        for name in ALGORITHMS:
            for policy in POLICIES:
                yield f"{name} / {policy}", {"algorithm": name, "policy": policy, "clients": 20}
    else:
        for clients in COHORTS:
            for policy in ("unsafe_plaintext", "masks"):
                chosen = {"algorithm": "fed_avg", "policy": policy, "clients": clients}
                yield f"{clients} clients / {policy}", chosen


def measure(chosen: Settings, data: str, rounds: int, seed: int) -> Settings:
    """Run one row and attack it; a run that is refused says why."""
    partition = {"name": "metis_disjoint", "clients": chosen["clients"]}
    document = {
        "algorithm": {"name": chosen["algorithm"], "rounds": rounds},
        "model": MODEL,
        "data": {"name": "cora", "root": data, "features": "row", "partition": partition},
        "evaluation": {"references": []},
        "policy": chosen["policy"],
        "resume": False,
        "seed": seed,
    }
    return attacked(document, looked="default")


def attacked(document: Settings, looked: str) -> Settings:
    """Run one configuration and attack it; a run that is refused says why."""
    import os

    from audits.attacks import attack
    from protocols.errors import SecureFglError
    from secure_fgl.attack_inputs.materials import material
    from secure_fgl.config import Config
    from secure_fgl.federation import Federation

    with tempfile.TemporaryDirectory() as folder:
        os.environ["SECURE_FGL_DATA"] = document["data"]["root"]
        document = {**document, "budget": {"store": f"{folder}/budgets"}}
        try:
            run = Federation.from_config(Config.parse(document)).run(Path(folder) / "run")
        except SecureFglError as error:
            return {"refused": error.what}
        found = attack(material(run, profile=looked), profile="quick")
    return _kept(found)


def rehearsed(document: Settings) -> Settings:
    """Rehearse one configuration and attack it; one that is refused says why."""
    from protocols.errors import SecureFglError
    from secure_fgl.config import Config
    from secure_fgl.elsewhere.rehearsing import rehearse

    try:
        found = rehearse(Config.parse(document), profile="quick").attacks
    except SecureFglError as error:
        return {"refused": error.what}
    return _kept(found)


def _kept(found: AttackReport) -> Settings:
    """Return the rows without what is the same in all rows of an attack; the file is long."""
    rows = (row.model_dump(mode="json", exclude=_CONSTANT) for row in found.rows)
    left = [row.model_dump(mode="json") for row in found.not_tested]
    kept = [{k: v for k, v in row.items() if v not in (None, "", [], 0)} for row in rows]
    return {"rows": kept, "not_tested": left}


def run(options: argparse.Namespace) -> None:
    """Run what FILE does not hold yet."""
    out, done = Path(options.out), set()
    if out.exists():
        lines = (json.loads(line) for line in out.read_text("utf-8").splitlines())
        done = {(line["table"], line["label"]) for line in lines}
    for label, chosen in rows(options.table):
        if (options.table, label) in done:
            continue
        found = measure(chosen, options.data, options.rounds, options.seed)
        with out.open("a", encoding="utf-8") as file:
            line = {"table": options.table, "label": label, **found}
            file.write(json.dumps(line, sort_keys=True) + "\n")
        print(label, file=sys.stderr)


def catalogue(options: argparse.Namespace) -> None:
    """Run the cells of the catalogue that FILE does not hold yet."""
    out, only = Path(options.out), [name for name in options.only.split(",") if name]
    for cell in _missing(_lines(out), only):
        if options.policies and cell.policy not in options.policies.split(";"):
            continue
        chosen = document(cell, options.data, options.rounds)
        found = rehearsed(chosen) if cell.policy == REHEARSED else attacked(chosen, looked="quick")
        line = {"table": "catalogue", "label": cell.label, "seed": cell.seed, **found}
        with out.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line, sort_keys=True) + "\n")
        print(cell.label, cell.seed, file=sys.stderr)


def plot(options: argparse.Namespace) -> None:
    """Draw the catalogue of FILE as a heat map: the worst verdict over all seeds."""
    Path(options.out).write_text(drawn(_lines(Path(options.file))), "utf-8")


def drawn(lines: Sequence[Settings]) -> str:
    """Return the heat map of the catalogue as SVG."""
    from benchmarks._leakage_map import heat_map

    found: dict[str, dict[str, str]] = {}
    for line in (line for line in lines if line["table"] == "catalogue"):
        mine = found.setdefault(line["label"], {})
        if "refused" in line:
            mine[""] = "refused"
        for row in line.get("rows", ()):
            worse = (mine.get(row["id"], row["verdict"]), row["verdict"])
            mine[row["id"]] = min(worse, key=GRAVITY.index)
    ids = sorted({id for verdicts in found.values() for id in verdicts if id})
    return heat_map(found, ids)


def page(options: argparse.Namespace) -> None:
    """Write the tables of the catalogue into a page, below the line that says so."""
    told = Path(options.page).read_text("utf-8").split(BELOW)[0]
    Path(options.page).write_text(f"{told}{BELOW}\n{below(_lines(Path(options.file)))}", "utf-8")


def below(lines: list[Settings]) -> str:
    """Return what stands below `BELOW` in the page."""
    return "\n".join([*tables(lines), "", undone(lines), ""])


def _lines(file: Path) -> list[Settings]:
    """Return the rows of a file; those of the catalogue in its own order."""
    there = file.read_text("utf-8").splitlines() if file.exists() else []
    order = {(cell.label, cell.seed): place for place, cell in enumerate(cells())}
    found = [json.loads(line) for line in there]
    return sorted(found, key=lambda line: order.get((line["label"], line.get("seed", 0)), -1))


def _missing(lines: list[Settings], only: Sequence[str] = ()) -> list[Cell]:
    done = {(line["label"], line["seed"]) for line in lines if line["table"] == "catalogue"}
    return [cell for cell in cells(only) if (cell.label, cell.seed) not in done]


def show(options: argparse.Namespace) -> None:
    """Print every table of FILE as Markdown: the gravest row of each attack, then its controls."""
    lines = _lines(Path(options.file))
    for table in dict.fromkeys(line["table"] for line in lines if line["table"] != "catalogue"):
        mine = [line for line in lines if line["table"] == table]
        ids = sorted({row["id"] for line in mine for row in line.get("rows", ())})
        print(f"\n{table}\n\n| run | {' | '.join(ids)} |\n|{'---|' * (len(ids) + 1)}")
        for line in mine:
            if "refused" in line:
                print(f"| {line['label']} | refused: {line['refused']} |{' |' * (len(ids) - 1)}")
                continue
            left = (_left(worst_of(line, id)) for id in ids)
            seed = f", seed {line['seed']}" if "seed" in line else ""
            print(f"| {line['label']}{seed} | {' | '.join(left)} |")
        print("\n| run | attack | prior | raw | null | left |\n|---|---|---|---|---|---|")
        for line in mine:
            for id in ids if "rows" in line else ():
                row = worst_of(line, id)
                if row.get("prior") is not None and id in ("A04", "A05"):
                    values = (row[name] for name in ("prior", "raw", "null", "protected"))
                    figures = " | ".join(
                        f"{v['value']} ({v['low']} to {v['high']})" for v in values
                    )
                    print(f"| {line['label']} | {id} {row['what']} | {figures} |")
    print(below(lines))


def undone(lines: list[Settings]) -> str:
    """Return which cells of the catalogue were not run, in a sentence."""
    seeds = dict[str, list[str]]()
    for cell in _missing(lines):
        seeds.setdefault(cell.label, []).append(str(cell.seed))
    told = "; ".join(f"{label}, seed {', '.join(mine)}" for label, mine in seeds.items())
    return f"Not run of the catalogue: {told or 'nothing'}."


def _left(row: Settings) -> str:
    seen, verdict = row.get("protected"), str(row["verdict"]).replace("_", " ")
    if seen is None:
        return verdict.lower()
    return f"**{verdict}** {seen['value']} ({seen['low']} to {seen['high']})"


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    verbs = parser.add_subparsers(required=True)
    runs = verbs.add_parser("run")
    runs.add_argument("table", choices=("algorithms", "cohorts"))
    runs.add_argument("--data", required=True)
    runs.add_argument("--out", required=True)
    runs.add_argument("--rounds", type=int, default=3)
    runs.add_argument("--seed", type=int, default=1)
    runs.set_defaults(do=run)
    whole = verbs.add_parser("catalogue")
    whole.add_argument("--data", required=True)
    whole.add_argument("--out", required=True)
    whole.add_argument("--only", default="", help="algorithms, separated by commas")
    whole.add_argument("--policies", default="", help="separated by semicolons")
    whole.add_argument("--rounds", type=int, default=3)
    whole.set_defaults(do=catalogue)
    plots = verbs.add_parser("plot")
    plots.add_argument("file")
    plots.add_argument("--out", required=True)
    plots.set_defaults(do=plot)
    pages = verbs.add_parser("page")
    pages.add_argument("file")
    pages.add_argument("page")
    pages.set_defaults(do=page)
    shows = verbs.add_parser("show")
    shows.add_argument("file")
    shows.set_defaults(do=show)
    options = parser.parse_args()
    options.do(options)


if __name__ == "__main__":
    main()

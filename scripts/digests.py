"""The models that short runs of the examples end with, under every preset: they must not move.

What is renamed, merged or moved in the code changes no repeatable result, since derivations take
labels (`protocols.plan.plan.Item.label`) in the place of names. Run from the repository's root::

    python -m scripts.digests --record          # write tests/vectors/model_digests.json anew
    python -m scripts.digests                   # compare; exits 1 and names what moved
    python -m scripts.digests banks cora        # some examples only

Floating-point libraries round differently on other processors, so digests are kept by processor and
by versions of torch and numpy; on a machine that has none there is nothing to compare. Examples on
real data need SECURE_FGL_DATA. What draws from the operating system (noise, groups of records,
ciphertexts that are compared) is not repeatable and has no digest.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import platform
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from protocols.disclosures.names import Disclosure
from protocols.errors import PolicyError
from protocols.plan.plan import Plan
from protocols.policy.policy import PRESETS
from secure_fgl.config import Config
from secure_fgl.federation import Federation

ROOT = Path(__file__).resolve().parent.parent
FILE = ROOT / "tests" / "vectors" / "model_digests.json"
EXAMPLES: dict[str, tuple[str, ...]] = {
    "apfl_gate_bbbp": ("algorithm.rounds=2",),
    "apfl_gate_ciao": ("algorithm.rounds=2",),
    "banks": ("algorithm.rounds=2", "evaluation.references=[]"),
    "cora": ("algorithm.rounds=2", "evaluation.references=[]"),
    "d_fed_gnn_cora": ("algorithm.rounds=1",),
    "fed_ego_cora": ("algorithm.rounds=2", "model.hidden=32"),
    "fed_per_cora": ("algorithm.rounds=2",),
    "fed_per_gnn_ml100k": ("algorithm.rounds=1",),
    "fed_pub_cora": ("algorithm.rounds=2", "model.hidden=32"),
    "fed_sage_cora": ("algorithm.rounds=2", "model.hidden=32"),
    "gcfl_molecules": ("algorithm.rounds=1",),
    "graph_fl_cora": ("algorithm.rounds=1",),
    "lenders": ("algorithm.rounds=2", "evaluation.references=[]"),
}
"""Every example that a preset can run, and what makes it short."""


def machine() -> str:
    """Return what digests depend on beside the code."""
    import numpy
    import torch

    text = Path("/proc/cpuinfo")
    lines = text.read_text("utf-8").splitlines() if text.is_file() else []
    found: dict[str, set[str]] = {}
    for name, _, value in (line.partition(":") for line in lines):
        found.setdefault(name.strip(), set()).add(value.strip())
    kind = ", ".join(sorted(found.get("model name", {platform.processor()})))
    # Virtual machines give many processors one name; what they can do decides which code runs.
    flags = " ".join(sorted({word for line in found.get("flags", set()) for word in line.split()}))
    abilities = hashlib.sha256(flags.encode()).hexdigest()[:12]
    versions = f"torch {torch.__version__}, numpy {numpy.__version__}"
    return f"{platform.machine()}, {kind}, {abilities}, {versions}"


def repeatable(plan: Plan) -> bool:
    """Tell whether nothing of a run's results is drawn from the operating system."""
    drawn = {Disclosure.SIMILARITY, Disclosure.MIXED}
    closed = {item.disclosure for item in plan.items if not item.unsafe}
    noised = any(item.noise is not None for item in plan.items) or plan.training is not None
    lots = plan.drawn is not None and Disclosure.SUM in closed  # all parties draw the cohorts
    return not (noised or lots or closed & drawn)


def digest(example: str, policy: str) -> str:
    """Return the digest of the model that a short run ends with, or why there is none."""
    settings = [*EXAMPLES[example], f"policy={policy}", "resume=false"]
    federation = Federation.from_config(Config.load(ROOT / f"examples/{example}.yaml", settings))
    try:
        plan = federation.plan()
        if not repeatable(plan):
            return "not repeatable"
        with tempfile.TemporaryDirectory() as folder:
            return federation.run(Path(folder) / "run", plan=plan).model_sha256 or "no model"
    except PolicyError as error:  # the preset has no form of it, or cannot hold so many clients
        return f"refused: {type(error).__name__}"


def known() -> dict[str, dict[str, str]]:
    """Return the digests that were recorded on a machine of this kind, by example and preset."""
    found: dict[str, Any] = json.loads(FILE.read_text("utf-8")) if FILE.is_file() else {}
    return dict(found.get(machine(), {}))


def main(arguments: Sequence[str] | None = None) -> int:
    """Record or compare; return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("examples", nargs="*", default=[], help="names without their ending")
    parser.add_argument("--record", action="store_true", help="write what is found")
    options = parser.parse_args(arguments)
    before, found, moved = known(), dict[str, dict[str, str]](), 0
    for example in options.examples or EXAMPLES:
        found[example] = {}
        for policy in sorted(PRESETS):
            found[example][policy] = now = digest(example, policy)
            old = before.get(example, {}).get(policy, "")
            moved += old not in ("", now)
            state = "new" if not old else "same" if old == now else f"MOVED from {old}"
            print(f"{example} {policy}: {now} ({state})", flush=True)
    if options.record:
        whole = json.loads(FILE.read_text("utf-8")) if FILE.is_file() else {}
        whole[machine()] = {**before, **found}
        FILE.write_text(json.dumps(whole, indent=2, sort_keys=True) + "\n", "utf-8")
        return 0
    return 1 if moved else 0


if __name__ == "__main__":
    sys.exit(main())

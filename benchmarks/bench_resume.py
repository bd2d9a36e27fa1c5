"""What it costs to keep every party's state: the same run with and without, in turns.

    python benchmarks/bench_resume.py [--config examples/banks.yaml] [--rounds 20] [--repeats 3]

Prints one JSON object: per policy the smallest seconds either way and their ratios, of all rounds
by the clock, and of the whole run by this process's processor.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from pathlib import Path


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--config", default="examples/banks.yaml")
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--policies", nargs="*", default=["unsafe_plaintext", "masks", "he"])
    parser.add_argument("--set", dest="settings", action="append", default=[])
    options = parser.parse_args()
    from secure_fgl.config import Config
    from secure_fgl.federation import Federation

    common = [
        f"algorithm.rounds={options.rounds}",
        "evaluation.references=[]",
        "transport.workers=1",  # times of one core, as in the tables
        *options.settings,
    ]
    found = {}
    for policy in options.policies:
        seconds: dict[bool, list[tuple[float, float]]] = {True: [], False: []}
        for turn in range(2 * options.repeats):
            kept = turn % 2 == 0
            settings = [*common, f"policy={policy}", f"resume={str(kept).lower()}"]
            with tempfile.TemporaryDirectory() as folder:
                federation = Federation.from_config(Config.load(options.config, settings))
                begun = time.process_time()
                run = federation.run(Path(folder) / "run")
                used = time.process_time() - begun
                seconds[kept].append((run.result["wall_s"], used))
        wall, cpu = ({k: min(s[n] for s in v) for k, v in seconds.items()} for n in (0, 1))
        found[policy] = {
            "kept_s": wall[True],
            "bare_s": wall[False],
            "ratio": round(wall[True] / wall[False], 3),
            "kept_cpu_s": round(cpu[True], 3),
            "bare_cpu_s": round(cpu[False], 3),
            "cpu_ratio": round(cpu[True] / cpu[False], 3),
        }
    print(json.dumps(found, indent=2))


if __name__ == "__main__":
    main()

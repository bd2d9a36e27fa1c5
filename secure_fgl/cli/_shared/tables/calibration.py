"""The table of ``plan --calibrate``: noise to signal for each epsilon of a run."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING

from secure_fgl.cli._shared.output import cell, console, grid, print_json, say

if TYPE_CHECKING:
    from secure_fgl.calibration import Row


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

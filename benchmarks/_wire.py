"""What a server's connections carried, and what its processes used. Linux, with `ss`."""

from __future__ import annotations

import os
import re
import subprocess
from dataclasses import dataclass, field
from pathlib import Path

_TOLD = re.compile(r":(\d+)\s.*?bytes_acked:(\d+).*?bytes_received:(\d+)")


@dataclass
class Wire:
    """Counts TCP bytes at a server's port, over connections that come and go.

    Attributes:
        port: the server's.
        seen: by the other end's port, bytes to it and from it, at the last look.
    """

    port: int
    seen: dict[str, tuple[int, int]] = field(default_factory=dict)

    def look(self) -> tuple[int, int]:
        """Return the bytes to and from all sites so far, as far as a look saw them."""
        command = ["ss", "-tinHO", "state", "established", f"( sport = :{self.port} )"]
        done = subprocess.run(command, capture_output=True, text=True, check=True)  # noqa: S603
        for line in done.stdout.splitlines():
            if found := _TOLD.search(line.split(f":{self.port}", 1)[-1]):
                self.seen[found[1]] = (int(found[2]), int(found[3]))
        to, back = zip(*self.seen.values(), strict=True) if self.seen else ((), ())
        return sum(to), sum(back)


def processor(parent: int) -> float:
    """Return seconds of processor time of a process and of all below it that runs."""
    clock, told = os.sysconf("SC_CLK_TCK"), dict[int, tuple[int, float]]()
    for place in Path("/proc").iterdir():
        if place.name.isdigit():
            try:
                fields = (place / "stat").read_text().rsplit(")", 1)[1].split()
            except OSError:  # it ended just now
                continue
            told[int(place.name)] = (int(fields[1]), (int(fields[11]) + int(fields[12])) / clock)
    wanted = {parent}
    while more := {pid for pid, (above, _) in told.items() if above in wanted} - wanted:
        wanted |= more
    return sum(told[pid][1] for pid in wanted & {*told})

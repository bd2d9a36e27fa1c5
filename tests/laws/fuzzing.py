"""Hands hostile frames to native loaders in a child process, and sees how the child ends.

    python -m tests.laws.fuzzing --minutes 10         (this is `make fuzz`)

The child says before every frame which one it takes, in memory that both processes share. So a
child that is killed names its frame, and the parent makes that frame again.
"""

from __future__ import annotations

import argparse
import contextlib
import faulthandler
import json
import mmap
import os
import resource
import secrets
import signal
import struct
import sys
import tempfile
import time
import traceback
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from crypto.errors import CryptoError
from tests.laws.frames import KINDS, MUTATED, STRUCTURED, Loader, frame

GROWTH = 64 << 20
"""Bytes by which the child's largest resident size may grow after its first frames."""

ROOM = 1 << 30
"""Bytes of addresses that a child may ask for beyond those it began with (where Linux counts)."""

MUTATIONS, STRUCTURES = 100_000, 10_000
_PLACE = struct.Struct("<IIQ")
_FIRST = 20  # frames of each loader before memory is looked at


@dataclass
class Outcome:
    """How a child ended.

    Attributes:
        seed: of all frames.
        frames: how many were sent, by kind.
        taken: how many of them a loader took, the rest it refused.
        growth: bytes by which the largest resident size grew after the first frames.
        failure: what went wrong, with the loader, the frame's number and the seed; None if nothing.
        found: the frame of the failure.
    """

    seed: int
    frames: dict[str, int]
    taken: dict[str, int]
    growth: int = 0
    failure: str | None = None
    found: bytes = b""


def shares(loaders: Sequence[Loader], frames: int) -> list[int]:
    """Return how many frames each loader gets: at least so many in all, each loader some."""
    parts = sum(loader.share for loader in loaders)
    return [-(-frames * loader.share // parts) for loader in loaders]


def assault(
    loaders: Sequence[Loader],
    seed: int,
    mutations: int = MUTATIONS,
    structures: int = STRUCTURES,
) -> Outcome:
    """Send that many frames, and a few more, to the loaders, in a child process."""
    place, (receiver, sender) = mmap.mmap(-1, _PLACE.size), os.pipe()
    with tempfile.TemporaryFile() as errors:
        child = os.fork()
        if child == 0:
            os.close(receiver)
            os.dup2(errors.fileno(), 2)
            _live(loaders, seed, (mutations, structures), place, sender)
        os.close(sender)
        with os.fdopen(receiver, "rb") as pipe:
            said = pipe.read()
        _, status = os.waitpid(child, 0)
        errors.seek(0)
        words = errors.read().decode("utf-8", "replace").strip()[-500:]
    ended = os.waitstatus_to_exitcode(status)
    if ended == 0:
        outcome = Outcome(seed, **json.loads(said))
        if outcome.failure is None:
            return outcome
        cause = outcome.failure
    else:
        outcome = Outcome(seed, {}, {})
        cause = f"ended the process with {_named(ended)}: {words or 'no words'}"
    number, kind, index = _PLACE.unpack(place[:])
    loader = loaders[number]
    outcome.found = frame(loader, KINDS[kind], seed, index)
    outcome.failure = f"{loader.name}, {KINDS[kind]} frame {index} of seed {seed}: {cause}"
    return outcome


def _named(ended: int) -> str:
    return f"signal {signal.Signals(-ended).name}" if ended < 0 else f"exit code {ended}"


def _live(
    loaders: Sequence[Loader], seed: int, counts: tuple[int, int], place: Any, sender: int
) -> None:
    """Be the child; does not return."""
    code = 70  # of what goes wrong in the machinery itself
    try:
        faulthandler.disable()  # who dies of a frame is expected to, and the parent tells of it
        said = _feed(loaders, seed, counts, place)
        with os.fdopen(sender, "wb") as pipe:
            pipe.write(json.dumps(said).encode("ascii"))
        code = 0
    except BaseException:
        traceback.print_exc()
        sys.stderr.flush()
    finally:
        os._exit(code)


def _feed(
    loaders: Sequence[Loader], seed: int, counts: tuple[int, int], place: Any
) -> dict[str, Any]:
    _bound_addresses()
    plans = [(kind, shares(loaders, count)) for kind, count in zip(KINDS, counts, strict=True)]
    sent, taken = dict.fromkeys(KINDS, 0), dict.fromkeys((loader.name for loader in loaders), 0)
    said = {"frames": sent, "taken": taken}
    for loader in loaders:
        for valid in loader.frames:
            loader.feed(valid)  # a frame that is refused here makes the whole loader idle
    start = 0
    for first, last in ((0, _FIRST), (_FIRST, max(counts))):
        for number, loader in enumerate(loaders):
            for kind, (name, many) in enumerate(plans):
                for index in range(first, min(last, many[number])):
                    place[:] = _PLACE.pack(number, kind, index)
                    if failure := _one(loader, frame(loader, name, seed, index), taken):
                        return {**said, "failure": failure}
                    sent[name] += 1
        if first == 0:
            start = _peak()
        elif (growth := _peak() - start) > GROWTH:
            return {**said, "failure": f"memory grew by {growth >> 20} MiB", "growth": growth}
    return {**said, "growth": _peak() - start}


def _one(loader: Loader, data: bytes, taken: dict[str, int]) -> str | None:
    """Hand one frame over; returns what came out if it is none of our own errors."""
    try:
        loader.feed(data)
    except CryptoError:
        return None
    except Exception as error:
        return "raised " + "".join(traceback.format_exception(error)[-3:])
    taken[loader.name] += 1
    return None


def _peak() -> int:
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def _bound_addresses() -> None:
    """Let what a claim makes a library ask for fail, and so be seen, instead of being granted."""
    with contextlib.suppress(OSError, ValueError):
        pages = int(Path("/proc/self/statm").read_text("ascii").split()[0])
        limit = pages * resource.getpagesize() + ROOM
        resource.setrlimit(resource.RLIMIT_AS, (limit, resource.getrlimit(resource.RLIMIT_AS)[1]))


def main() -> int:
    """Fuzz for some minutes with fresh seeds; the exit code is 1 after a finding."""
    from tests.laws.native import loaders

    given = argparse.ArgumentParser(prog="make fuzz", description=__doc__)
    given.add_argument("--minutes", type=float, default=10.0)
    given.add_argument("--seed", type=int, help="one round with this seed")
    asked = given.parse_args()
    known, end = loaders(), time.monotonic() + 60 * asked.minutes
    total, rounds = dict.fromkeys(KINDS, 0), 0
    while rounds == 0 or (asked.seed is None and time.monotonic() < end):
        seed = secrets.randbits(48) if asked.seed is None else asked.seed
        print(f"seed {seed}", end=" ", flush=True)
        outcome = assault(known, seed, MUTATIONS // 5, STRUCTURES // 2)
        rounds += 1
        for kind, count in outcome.frames.items():
            total[kind] += count
        if outcome.failure:
            kept = Path(tempfile.mkstemp(prefix=f"frame-{seed}-", suffix=".bin")[1])
            kept.write_bytes(outcome.found)
            print(f"\n{outcome.failure}\nThe frame is in {kept}", file=sys.stderr)
            return 1
        print(f"{outcome.frames}, grew by {outcome.growth >> 20} MiB", flush=True)
    counts = f"{total[MUTATED]:,} mutated and {total[STRUCTURED]:,} structured frames"
    print(f"{rounds} rounds, {counts} to {len(known)} loaders: nothing found.")
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""Whether a running job is cut for sites that came back, and when.

NVFlare takes no site into a job that runs: one whose engine died has no relay in it until the next
job, however soon it is back. A new job costs all sites time, and no round. So the running one is
cut at the end of a round, and only where the new one costs less than a tenth of what is left to do;
and at once where the job is without sites that the run cannot go on without.

Who died and is back sooner than the server noticed is known by its silence: it is up for the server
and did not answer in a whole round. Where the run cannot go on without those, rounds are lost one
after the other, so the job is cut at the end of one, whatever is left. A silent site may also be a
party that was stopped, so a job is cut for it once, until it has answered again.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection

__all__ = ["Returning"]

_SHARE = 10  # a new job pays where what is left takes so many times as long
_LEAST_SECONDS = 30.0  # that a new job costs: its processes start, sites poll, relays connect


class Returning:
    """Who came back that a job is without.

    Args:
        sites: of the run.
        there: those that the server heard of as the job was handed in.
        enough: tells whether the run can go on with some sites.
        rounds: of the whole run.
        tried: sites for which a job was cut, and which have not answered since; it is kept up.
        now: tells the time, in seconds.
    """

    def __init__(
        self,
        sites: Collection[str],
        there: Collection[str],
        *,
        enough: Callable[[Collection[str]], bool],
        rounds: int,
        tried: set[str],
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._sites, self._without = set(sites), set(sites) - set(there)
        self._enough, self._rounds, self._now = enough, rounds, now
        self._tried, self._silent = tried, set[str]()
        self._began, self._cost = now(), 0.0
        self._first: tuple[int, float] | None = None
        self._round = 0

    def look(self, there: Collection[str], silent: Collection[str], round: int) -> list[str]:
        """Return for whom the job is to be cut now, sorted; nobody: it goes on.

        To be called while the job runs.

        Args:
            there: sites that the server hears of.
            silent: those that did not answer the last time.
            round: in which the run is.
        """
        now, ended = self._now(), round > self._round > 0
        self._cost = self._cost or max(_LEAST_SECONDS, now - self._began)
        if round > 0:
            self._round, self._first = round, self._first or (round, now)
        self._without |= self._sites - set(there)
        self._tried.intersection_update(silent)
        lost = self._without | (self._silent & set(silent))  # of a whole round
        if ended or not self._silent:
            self._silent = set(silent)
        stuck = not self._enough(self._sites - self._without) and self._enough(there)
        # Of whom the server lost sight again in this job, one that was cut before says nothing.
        back = sorted((lost & set(there)) - (set() if stuck else self._tried))
        losing = not self._enough(self._sites - lost) and self._enough(there)
        if not back or not (stuck or (ended and (losing or self._pays(now)))):
            return []
        self._tried.update(back)
        return back

    def _pays(self, now: float) -> bool:
        first, began = self._first or (self._round, now)
        if self._round == first:
            return False
        each = (now - began) / (self._round - first)
        return (self._rounds - self._round) * each >= _SHARE * self._cost

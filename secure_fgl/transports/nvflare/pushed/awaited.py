"""What an exchange waits for: every site's answer, or its code, or the deadline."""

from __future__ import annotations

import threading
import time
from collections.abc import Collection

from nvflare.apis.signal import Signal

from secure_fgl.transports.nvflare.site.codes import Heard

_LOOK_SECONDS = 0.2  # how often a wait looks whether the job was aborted
_GRACE_SECONDS = 1.0  # in which a site that missed its last deadline takes this request, if it can


class JobAborted(Exception):
    """NVFlare ends the job while an exchange is under way."""


class Awaited:
    """Collects what the sites of one exchange say; each is asked by a thread of its own.

    Args:
        sites: whom the exchange asks.
        unhurried: sites for which nobody waits unless they take the request.
    """

    def __init__(self, sites: Collection[str], unhurried: Collection[str]) -> None:
        self._left, self._unhurried = set(sites), set(unhurried)
        self._news, self._found = threading.Condition(), dict[str, Heard]()

    def expects(self, site: str) -> bool:
        """Tell whether anything that a site says still counts."""
        with self._news:
            return site in self._left

    def taken(self, site: str) -> None:
        """Note that a site's party took the request: it is there, so it is waited for."""
        with self._news:
            self._unhurried.discard(site)

    def give_up(self, site: str, said: Heard | None = None) -> None:
        """Note what a site said, or that nothing more is expected of it."""
        with self._news:
            if site in self._left:
                self._left.discard(site)
                if said is not None:
                    self._found[site] = said
                self._news.notify_all()

    def wait(self, seconds: float, abort: Signal) -> dict[str, Heard]:
        """Return what has come once nobody is awaited any more or the time is up.

        Nothing that comes later counts.

        Raises:
            JobAborted: NVFlare ends the job.
        """
        start = time.monotonic()
        with self._news:
            try:
                while self._left and (passed := time.monotonic() - start) < seconds:
                    if abort.triggered:
                        raise JobAborted
                    if self._left <= self._unhurried and passed > _GRACE_SECONDS:
                        break
                    self._news.wait(min(seconds - passed, _LOOK_SECONDS))
                return dict(self._found)
            finally:
                self._left.clear()

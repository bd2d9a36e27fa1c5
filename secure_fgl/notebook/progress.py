"""Progress of a run that was started from Python: a bar of rich, or of tqdm in a notebook."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

__all__ = ["in_notebook", "watched"]

Told = Callable[[int, int, Mapping[str, Any]], None]


def in_notebook() -> bool:
    """Tell whether this process is the kernel of a notebook."""
    running = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    return type(running).__name__ == "ZMQInteractiveShell"


@contextmanager
def watched(progress: Told | bool, headline: Callable[[], str]) -> Iterator[Told | None]:
    """Give what is called after each round.

    Args:
        progress: a function of one's own; True: a bar; False: nothing.
        headline: returns the name of the score that the bar shows.
    """
    if progress is False:
        yield None
    elif progress is not True:
        yield progress
    elif in_notebook():
        with _notebook_bar(headline()) as bar:
            yield bar
    else:
        from secure_fgl.cli._shared.progress import RunProgress

        with RunProgress(headline()) as shown:
            yield shown


@contextmanager
def _notebook_bar(headline: str) -> Iterator[Told]:
    from tqdm.auto import tqdm  # a widget where ipywidgets is there, else text

    with tqdm(total=0, unit="round") as bar:

        def told(round: int, rounds: int, metrics: Mapping[str, Any]) -> None:
            bar.total, bar.n = rounds, round
            score = metrics.get(headline)
            if isinstance(score, float):
                bar.set_postfix_str(f"{headline} {score:.3f}", refresh=False)
            bar.refresh()

        yield told

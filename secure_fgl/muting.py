"""What code of others prints, logs and warns with, which may hold data: no text of it is shown.

`quiet` holds to that all of an algorithm that anybody runs: its answers, at a client and where an
audit computes them again, its rounds, at the aggregator and where clients play them, its first
state and its models. `plugins.loading` holds a plug-in's file to it while that is imported.
"""

from __future__ import annotations

import contextlib
import io
import logging
import sys
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial, wraps
from typing import Any

from protocols.forms import Algorithm, Form
from protocols.rounds import Round

__all__ = ["AnswersWarned", "mute", "quiet"]


class AnswersWarned(UserWarning):
    """Code of others warned; of its warnings only number and category are told."""


@contextlib.contextmanager
def mute(what: str) -> Iterator[None]:
    """Let no text that code prints, logs or warns with reach terminal or logs.

    Any of it may hold a site's values. What is left of it is how many warnings of which built-in
    category it gave; an isolated answer's process has no output at all. Code that writes to
    descriptors by itself is stopped by isolation alone.

    Args:
        what: begins the sentence that says how many warnings there were.
    """
    nowhere, before = io.StringIO(), logging.root.manager.disable
    with warnings.catch_warnings(record=True) as given:
        try:
            logging.disable(sys.maxsize)  # levels of their own lie above CRITICAL
            with contextlib.redirect_stdout(nowhere), contextlib.redirect_stderr(nowhere):
                yield
        finally:
            logging.disable(before)
    kinds = Counter(_builtin(warning.category) for warning in given)
    if told := ", ".join(f"{number} {kind}" for kind, number in sorted(kinds.items())):
        warnings.warn(
            f"{what} gave warnings ({told}); their texts may hold data and are not shown.",
            AnswersWarned,
            stacklevel=2,
        )


def _builtin(category: type[Warning]) -> str:
    """Return the nearest category that Python has itself: a class's name may be a value, too."""
    return next(kind.__name__ for kind in category.__mro__ if kind.__module__ == "builtins")


def quiet(algorithm: Algorithm[Any]) -> Algorithm[Any]:
    """Return the algorithm with all that it computes held to `mute`."""
    return replace(
        algorithm,
        init=_hushed(algorithm.init, f"The first state of {algorithm.name!r}"),
        model=_hushed(algorithm.model, f"A model of {algorithm.name!r}"),
        forms=tuple(_quiet(form) for form in algorithm.forms),
    )


def _quiet(form: Form[Any]) -> Form[Any]:
    answers = [_hushed(e.answer, f"An answer of {e.name!r}") for e in form.exchanges]
    return replace(
        form,
        round=_quiet_round(form.round),
        exchanges=tuple(replace(e, answer=a) for e, a in zip(form.exchanges, answers, strict=True)),
        plain=None if form.plain is None else _quiet(form.plain),
    )


def _hushed(code: Callable[..., Any], what: str) -> Callable[..., Any]:
    @wraps(code)
    def hushed(*given: Any, **named: Any) -> Any:
        with mute(what):
            return code(*given, **named)

    if (owner := getattr(code, "__self__", None)) is not None:
        vars(hushed)["__self__"] = owner  # audits ask whose method an answer is
    return hushed


def _quiet_round(code: Callable[..., Round[Any]]) -> Callable[..., Round[Any]]:
    """Return a round each of whose steps is muted; between them the driver may say what it does."""

    @wraps(code)
    def round(*given: Any) -> Round[Any]:
        with mute("A round"):
            steps = code(*given)
        go: Callable[[], Any] = partial(next, steps)
        while True:
            with mute("A round"):
                try:
                    ask = go()
                except StopIteration as stop:
                    return stop.value
            try:
                go = partial(steps.send, (yield ask))
            except GeneratorExit:
                steps.close()
                raise
            except BaseException as error:
                go = partial(steps.throw, error)

    return round

"""The session's side: starts the worker, asks it, and believes nothing of what it says."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol, Self

from algorithms.tasks import Site
from protocols.errors import NotInPlan, PolicyError, SecureFglError, UnfitMessage
from protocols.evidence.captures import coins, content_key
from protocols.forms import Exchange, Form
from protocols.messages import Message
from protocols.plan.plan import Plan
from protocols.policy.policy import PrivacyPolicy
from protocols.roles.client import ClientSession
from protocols.sessions.engine import Session
from protocols.wire.control import CONTROL
from secure_fgl._floors import PLUGINS
from secure_fgl.config import Config
from secure_fgl.errors import UsageError
from secure_fgl.isolation import frames
from secure_fgl.isolation.forked import ONE_THREAD, Forked, can_fork
from secure_fgl.isolation.frames import FAILURES, LONGEST, PlainCodec, messages, steps_of
from secure_fgl.isolation.kernel import check_kernel, set_traceable
from secure_fgl.isolation.separation import close_network
from secure_fgl.reasons import shown

__all__ = ["ANSWER_SECONDS", "AnswerFailed", "Sandbox", "check_loadable", "discard", "prepare"]

ANSWER_SECONDS = 6 * 3600.0
"""How long loading, or one answer, may take. Late is broken: the run could only hang."""

_KEPT = ("HOME", "LANG", "LC_ALL", "LD_LIBRARY_PATH", "PATH", "SECURE_FGL_DATA")
"""What of the environment the worker is given."""

_PATIENCE_S = 5.0
_DEEPEST = 20  # of the plug-ins' lines that an error passed


def check_loadable(given: object) -> None:
    """Raise UsageError if the data are in memory already: the worker loads them by their name."""
    if given is not None:
        raise UsageError(
            "Answers cannot be isolated on a data set that was handed over in memory.",
            why="the process that computes them has nothing of this one and loads the data itself",
            fix="name the data set, or a folder of your own, in data.name; or set isolate: false "
            "for code that you read",
        )


class AnswerFailed(SecureFglError):
    """An answer failed in its own process, or the process did; nothing was sent."""


class Worker(Protocol):
    """A process that serves the other end of the channel."""

    def kill(self) -> None:
        """End it at once."""

    def wait(self, timeout: float | None = None) -> int:
        """Wait until it has ended."""


def spawn(channel: socket.socket) -> Worker:
    """Start a fresh interpreter on the worker: its memory holds nothing of this process.

    It stands in the same folder, since data may be named from there.
    """
    house = str(Path(__file__).resolve().parents[2])
    paths = [house, *filter(None, [os.environ.get("PYTHONPATH")])]
    kept = {name: os.environ[name] for name in _KEPT if name in os.environ}
    nothing = subprocess.DEVNULL
    return subprocess.Popen(
        [sys.executable, "-P", "-m", "secure_fgl.isolation.worker"],
        stdin=channel.fileno(), stdout=nothing, stderr=nothing,
        env={**kept, **ONE_THREAD, "PYTHONPATH": os.pathsep.join(paths)},
        start_new_session=True,  # deaf to the terminal's Ctrl-C
    )  # fmt: skip


def _started() -> tuple[Worker, socket.socket]:
    """Return a worker in a fresh interpreter, and its channel; raises OSError."""
    ours, theirs = socket.socketpair()
    try:
        with theirs:
            return spawn(theirs), ours
    except OSError:
        ours.close()
        raise


_prepared: list[tuple[Worker, socket.socket]] = []
"""A worker that was forked before this process held a key, and its channel."""


def prepare(serve: Callable[[int], None]) -> None:
    """Fork the worker of this process's one sandbox, before this process loads any key.

    The next `Sandbox` takes it. Where this process cannot fork, that one starts a fresh
    interpreter.

    Args:
        serve: `worker.serve`; it is given the worker's end of the channel.
    """
    if not can_fork():
        return
    ours, theirs = socket.socketpair()

    def work() -> int:
        close_network()  # before any plug-in is loaded
        kept = {name: os.environ[name] for name in _KEPT if name in os.environ}
        os.environ.clear()
        os.environ.update(kept | ONE_THREAD)
        with open(os.devnull, "wb") as nothing:
            os.dup2(nothing.fileno(), 1)
            os.dup2(nothing.fileno(), 2)
        serve(os.dup(0))
        return 0

    with theirs:
        _prepared.append(
            (Forked(work, stdin=theirs.fileno(), leads=True, name="fgl-answers"), ours)
        )


def discard() -> None:
    """End a worker that nobody will ask."""
    while _prepared:
        prepared, channel = _prepared.pop()
        channel.close()
        prepared.kill()
        prepared.wait(_PATIENCE_S)


class Sandbox:
    """One worker for all sites of this process; use it as a context manager.

    Args:
        config, policy, plan: of the run; the worker loads the data that they name.
        clients: whose sites it holds.
        plugins: files of the plug-ins that are named; the worker reads them itself, and holds them
            against the plan before it runs them.
        seconds: how long one answer may take.

    Raises:
        CannotIsolate: the kernel of this machine cannot hold it.
        UsageError: the data cannot be used.
        AnswerFailed: the worker did not come up.
    """

    def __init__(
        self,
        config: Config,
        policy: PrivacyPolicy,
        plan: Plan,
        clients: Sequence[str],
        *,
        plugins: Sequence[Path] = (),
        seconds: float = ANSWER_SECONDS,
    ) -> None:
        check_kernel()
        self._seconds, self._over, self._generated = seconds, "", plan.data.synthetic
        try:
            self._worker, self._channel = _prepared.pop() if _prepared else _started()
        except OSError as error:
            raise AnswerFailed(
                f"The process that computes answers cannot be started ({error.strerror}).",
                why="too many processes, or too little memory",
                fix="nothing was sent; make room, and start again",
            ) from error
        self._was_traceable = set_traceable(False)
        order = {
            "clients": list(clients),
            "config": config.model_dump(mode="json"),
            "plan": plan.text(),
            "plugins": list(map(str, plugins)),
            "policy": json.dumps(policy.document()),
            "seconds": seconds,
        }
        try:
            self._started(*self._ask(json.dumps(order).encode()))
        except BaseException:
            self.close()
            raise

    def _started(self, kind: bytes, content: memoryview) -> None:
        if kind == frames.CLOSED:
            return
        told = {}
        with suppress(ValueError):
            told = json.loads(bytes(content))
        if kind == frames.ERROR and isinstance(told, dict) and isinstance(told.get("what"), str):
            raise UsageError(told["what"], why=str(told.get("why")), fix=str(told.get("fix")))
        raise self._broken("it said something else than that it is ready")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """End the worker. Harmless when repeated; nothing is answered any more."""
        self._over = self._over or "it was ended"
        self._channel.close()
        self._worker.kill()
        with suppress(subprocess.TimeoutExpired):
            self._worker.wait(_PATIENCE_S)
        if self._was_traceable:
            set_traceable(True)
        self._was_traceable = False

    def plant(self, session: Session) -> None:
        """Hand over what a client's canaries are drawn from, and which of them train.

        The secret behind both stays here: nobody in the worker can open the coins, or tell that
        they are what the ledger commits to. The worker takes this once, before a first answer.
        Sessions without canaries are left alone.

        Raises:
            AnswerFailed: the worker did not put them in; nothing was sent.
        """
        if not isinstance(session, ClientSession) or not session.canary_secret:
            return
        canaries, secret = session.context.policy.canaries, session.canary_secret
        chosen = coins(secret, canaries.records)  # type: ignore[union-attr]
        asked = {"chosen": chosen, "client": session.name, "key": content_key(secret)}
        kind, content = self._ask(PlainCodec(()).pack(asked))
        if kind == frames.ERROR:
            raise self._failure("canaries", bytes(content))
        if kind != frames.PLANTED:
            raise self._broken("it said something else than that the canaries are in")
        session.planted = True

    def form(self, form: Form[Any], sites: Mapping[str, Site]) -> Form[Any]:
        """Return the form with answers that are computed in the worker.

        Args:
            form: the admitted form.
            sites: by client; only their memory, draws and training are looked at.
        """
        codec = PlainCodec({*CONTROL, *form.messages()})
        names = {id(site): name for name, site in sites.items()}

        def isolated(exchange: Exchange) -> Exchange:
            def answer(site: Site, *given: Message) -> tuple[Message, ...]:
                return self._answer(codec, exchange, names[id(site)], site, given)

            return replace(exchange, answer=answer)

        return replace(form, exchanges=tuple(map(isolated, form.exchanges)))

    def _answer(
        self,
        codec: PlainCodec,
        exchange: Exchange,
        client: str,
        site: Site,
        given: tuple[Message, ...],
    ) -> tuple[Message, ...]:
        steps = steps_of(site)
        standing = steps.standing if steps is not None else None
        asked = {
            "client": client,
            "draws": site.draws,
            "exchange": exchange.name,
            "given": given,
            "memory": site.memory,
            "standing": standing,
        }
        kind, content = self._ask(codec.pack(asked))
        if kind == frames.ERROR:
            raise self._failure(exchange.name, bytes(content))
        if kind != frames.ANSWER:
            raise self._broken("it said something else than an answer")
        try:
            found = codec.unpack(bytes(content))
            said = messages(found["said"], exchange.back)
            memory, draws = found["memory"], found["draws"]
            if not isinstance(memory, dict) or not _counts(draws):
                raise ValueError
            after = _stood(standing, found["standing"])
        except Exception as error:  # whatever a stranger's bytes bring about
            raise self._broken("what it said is no answer of this exchange") from error
        site.memory, site.draws = memory, draws
        if steps is not None and after is not None:
            steps.take_up(after)
        return said

    def _ask(self, content: bytes) -> tuple[bytes, memoryview]:
        if self._over:
            raise self._broken(self._over)
        try:
            return frames.ask(self._channel, content, self._seconds)
        except frames.FrameError as error:
            raise self._broken(str(error)) from error

    def _broken(self, why: str) -> AnswerFailed:
        self._over = self._over or why
        self.close()
        return AnswerFailed(
            "The process that computes answers is of no use any more.",
            why=f"{why}; it may have had too little memory, or the algorithm's file is at fault",
            fix="nothing of this answer was sent; look at the file and at the machine, and start "
            "again",
        )

    def _failure(self, name: str, content: bytes) -> Exception:
        """Return the error that a closed form stands for; the worker is fit for more."""
        kind, lines, text = _read(content)
        text = f": {text}" if text and self._generated else ""
        ours = {"NotInPlan": NotInPlan, "PolicyError": PolicyError, "UnfitMessage": UnfitMessage}
        error: Exception = ours.get(kind, AnswerFailed)(
            f"The answer of {name!r} failed in its own process ({kind}){text}.", **_whose(lines)
        )
        if kind == "ArithmeticError":  # means that training diverged, and is no error of ours
            error = ArithmeticError("in the process of the answers")
        error.raised_in = lines  # type: ignore[attr-defined] # read by `secure_fgl.reasons`
        return error


def _read(content: bytes) -> tuple[str, list[tuple[str, int]], str]:
    """Return kind, plug-ins' lines and text of a failure, whatever a stranger wrote there."""
    try:
        found = json.loads(content)
        kind, text = found["kind"], found["text"]
        lines = [(module, line) for module, line in found["lines"][-_DEEPEST:]]
        fits = kind in FAILURES and isinstance(text, str)
        if not fits or not all(_of_plugin(m) and type(n) is int for m, n in lines):
            raise ValueError
    except (ValueError, TypeError, KeyError, RecursionError):
        return "an error without a name", [], ""
    return kind, lines, "".join(c if c.isprintable() else " " for c in text[:LONGEST])


def _of_plugin(module: object) -> bool:
    return type(module) is str and module.partition(".")[0] == PLUGINS


def _whose(lines: Sequence[tuple[str, int]]) -> dict[str, str]:
    """Return cause and remedy of a failed answer, by the plug-ins' lines that it passed."""
    if lines:
        passed = [f"  {line}" for line in shown(lines)]
        return {
            "why": "\n".join(["the code of a plug-in raised it:", *passed]),
            "fix": "mend the plug-in; secure-fgl check FILE runs it on generated data",
        }
    return {
        "why": "a fault in the algorithm's code, or data that do not fit it",
        "fix": "nothing was sent; to see the traceback, run the algorithm on data that may be "
        "shown, in a simulation with isolate: false and --verbose",
    }


def _counts(draws: object) -> bool:
    return isinstance(draws, dict) and all(
        type(label) is str and type(asked) is int and asked >= 0 for label, asked in draws.items()
    )


Standing = tuple[int, int, int]


def _stood(before: Standing | None, after: Any) -> Standing | None:
    """Return how private training stands; raises ValueError for what steps cannot lead to."""
    if before is None and after is None:
        return None
    if before is None or not isinstance(after, tuple) or [type(n) for n in after] != [int] * 3:
        raise ValueError
    round, left, taken = after
    if round != before[0] or left + taken != before[1] + before[2] or not 0 <= left <= before[1]:
        raise ValueError
    return round, left, taken

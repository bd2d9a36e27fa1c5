"""Killing a run with SIGKILL at a chosen place, and going on with it: a process each time.

The processes are forked, so that a kill costs no start-up. A child that is killed leaves what a
machine leaves: files. Nothing of it is closed, flushed or tidied up.
"""

from __future__ import annotations

import os
import pickle
import signal
import traceback
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from protocols.policy.policy import PrivacyPolicy
from secure_fgl.config import Config
from secure_fgl.federation import Federation
from secure_fgl.run.simulation import Connect
from secure_fgl.transports.memory import MemoryTransport
from tests import forked
from tests.kept import kept

Sabotage = Callable[[], None]
"""Called in the child before the run; arranges the kill."""


def die() -> None:
    """Kill this process as a power button would: no handler, no finally."""
    os.kill(os.getpid(), signal.SIGKILL)


@dataclass
class Ended:
    """How a child ended.

    Attributes:
        killed: by SIGKILL.
        result: of a run that finished.
        error: text of what was raised, if something was.
        messages: how many messages the transport carried.
    """

    killed: bool
    result: Mapping[str, Any] | None = None
    error: str = ""
    messages: int = 0


class KillingTransport(MemoryTransport):
    """Kills before (`after` False) or after the `number`-th message was answered."""

    number, after, carried = 0, False, 0

    def exchange(self, deliveries: Any) -> Any:
        answers: list[Any] = []
        for delivery in deliveries:
            type(self).carried += 1
            here = self.carried == self.number
            if here and not self.after:
                die()
            answers += super().exchange([delivery])
            if here and self.after:
                die()
        return answers


def play(
    chosen: Config,
    out: Path,
    *,
    at: int = 0,
    after: bool = False,
    resume: bool = False,
    policy: PrivacyPolicy | None = None,
    sabotage: Sabotage | None = None,
    connect: Connect | None = KillingTransport,
) -> Ended:
    """Run in a forked child, to its end or its kill; only a run that is disturbed keeps state.

    Without `connect` clients are played by as many workers as the configuration says.
    """
    forked.warm()
    receiver, sender = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(receiver)
        said: tuple[Any, str, int] = (None, "", 0)
        try:
            KillingTransport.number, KillingTransport.after = at, after
            KillingTransport.carried = 0
            if sabotage is not None:
                sabotage()
            federation = Federation(policy=policy, config=chosen)
            disturbed = at or resume or sabotage is not None
            with kept() if disturbed else nullcontext():
                run = federation.run(out, connect=connect, resume=resume)
            said = (run.result, "", KillingTransport.carried)
        except BaseException as error:
            text = "".join(traceback.format_exception(error))
            said = (None, f"{type(error).__name__}: {text}", KillingTransport.carried)
        finally:
            with os.fdopen(sender, "wb") as pipe:
                pickle.dump(said, pipe)  # between two processes of one test
            os._exit(0)
    os.close(sender)
    with os.fdopen(receiver, "rb") as pipe:
        data = pipe.read()
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        assert os.WTERMSIG(status) == signal.SIGKILL
        return Ended(killed=True)
    result, error, messages = pickle.loads(data)
    return Ended(False, result, error, messages)

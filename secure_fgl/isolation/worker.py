"""The worker: holds the sites' data, closes its sandbox, and answers until nobody asks any more.

Run by `secure_fgl.isolation.sandbox` as ``python -m secure_fgl.isolation.worker``, with the
channel as standard input. It is told a configuration, a policy and a plan, which are no secrets,
and loads plug-ins and data itself.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from algorithms.tasks import DataSpec, Site
from protocols.errors import LocalProtocolError, SecureFglError
from protocols.forms import Form
from protocols.plan.plan import Plan
from protocols.policy.policy import PrivacyPolicy
from protocols.privacy.noising import PrivateSteps
from protocols.wire.control import CONTROL
from secure_fgl.config import Config
from secure_fgl.data.canaries import planted
from secure_fgl.federation import Federation
from secure_fgl.isolation import frames, kernel
from secure_fgl.isolation.frames import FAILURES, LONGEST, PlainCodec, said, steps_of
from secure_fgl.reasons import plugin_lines
from secure_fgl.run.driver import one_thread_and_deterministic

__all__ = ["Answers", "serve"]

_FLOORS = ("algorithms", "audits", "crypto", "protocols", "secure_fgl")


class Answers:
    """What the worker computes.

    Args:
        form: the admitted form.
        sites: by client.
        seconds: how long one answer may take; then the kernel ends this process.
        spec: of the data, where clients have canaries; None: they have none.
        hidden: whether training hides single records; see `secure_fgl.data.canaries.made_up`.
        generated: whether a generator made all data; then an error's text may be shown.
    """

    def __init__(
        self,
        form: Form[Any],
        sites: Mapping[str, Site],
        seconds: float,
        spec: DataSpec | None = None,
        hidden: bool = False,
        generated: bool = False,
    ) -> None:
        self._exchanges, self._sites = {e.name: e for e in form.exchanges}, sites
        self._spec, self._hidden, self._generated = spec, hidden, generated
        self._bare = set(sites if spec is not None else ())
        self._codec = PlainCodec({*CONTROL, *form.messages()})
        self._seconds = seconds

    @classmethod
    def ordered(cls, order: Mapping[str, Any]) -> Answers:
        """Load what an order names; raises UsageError, and OSError for what cannot be read."""
        config = Config.model_validate(order["config"])
        policy = PrivacyPolicy.model_validate_json(order["policy"])
        plan = Plan.model_validate_json(order["plan"])
        federation = Federation(config=config, policy=policy, plugins=order["plugins"])
        federation.plugins.hold_to(plan)
        prepared = federation.prepare(plan)
        clients = order["clients"]
        prepared.load(None if clients == list(plan.clients) else clients)
        sites = dict(zip(clients, prepared.sites, strict=True))
        for site in sites.values():
            site.training = PrivateSteps(plan.training) if plan.training is not None else None
        spec = prepared.task.spec if policy.canaries is not None else None
        facts = order["seconds"], spec, policy.training is not None, plan.data.synthetic
        return cls(policy.admit(prepared.algorithm), sites, *facts)

    def reply(self, data: bytes) -> tuple[bytes, bytes]:
        """Return kind and content of the reply to one question."""
        asked = self._codec.unpack(data)
        try:
            if "exchange" not in asked:
                return self._planted(asked["client"], asked["key"], asked["chosen"])
            if asked["client"] in self._bare:
                raise LocalProtocolError("The site trains without the canaries of its client.")
        except Exception as error:
            return frames.ERROR, failure(error, self._generated)
        site, exchange = self._sites[asked["client"]], self._exchanges[asked["exchange"]]
        site.memory, site.draws = asked["memory"], asked["draws"]
        if (steps := steps_of(site)) is not None:
            steps.take_up(asked["standing"])
        signal.setitimer(signal.ITIMER_REAL, self._seconds)
        try:
            found = exchange.answer(site, *asked["given"])
            messages = () if found is None else found if isinstance(found, tuple) else (found,)
            content = {
                "draws": site.draws,
                "memory": site.memory,
                "said": said(messages),
                "standing": steps.standing if steps is not None else None,
            }
            return frames.ANSWER, self._codec.pack(content)
        except Exception as error:
            return frames.ERROR, failure(error, self._generated)
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)

    def _planted(self, client: str, key: bytes, chosen: Any) -> tuple[bytes, bytes]:
        """Put a client's canaries in, once, before its first answer."""
        if self._spec is None or client not in self._bare:
            raise LocalProtocolError("Canaries come once, and only where the policy has some.")
        site = self._sites[client]
        site.data = planted(site.data, self._spec, key, chosen, hidden=self._hidden)
        self._bare.discard(client)
        return frames.PLANTED, b""


def failure(error: Exception, generated: bool) -> bytes:
    """Return what an error is: its kind, the plug-ins' lines that it passed; text if it may be."""
    name = next(name for name, kind in FAILURES.items() if isinstance(error, kind))
    text = str(error)[:LONGEST] if generated else ""
    return json.dumps({"kind": name, "lines": plugin_lines(error), "text": text}).encode()


def readable() -> list[Path]:
    """Return the folders of code, which later imports need."""
    house = Path(__file__).resolve().parents[2]
    places = [Path(sys.prefix), Path(sys.base_prefix), *(house / floor for floor in _FLOORS)]
    return [place for place in dict.fromkeys(places) if place.is_dir()]


def _alone(channel: int) -> None:
    """Go on in a child of one thread, where libraries started others while data were loaded.

    A reader of tables starts threads that never end, and no sandbox would hold them. This process
    then only waits; the child dies with it.
    """
    if kernel.threads() == 1:
        return
    parent, child = os.getpid(), os.fork()
    if child:
        os.close(channel)
        os.close(0)  # the channel too; whoever listens must hear that the child ended
        _, status = os.waitpid(child, 0)
        os._exit(abs(os.waitstatus_to_exitcode(status)))
    kernel.die_with(parent)


def serve(channel: int) -> None:
    """Load, close the sandbox, and answer until the session's end of the channel is closed."""
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    sys.dont_write_bytecode = True
    order = frames.read(channel)
    if order is None:
        return
    with one_thread_and_deterministic():
        try:
            answers = Answers.ordered(json.loads(order))
            _alone(channel)
            kernel.close_sandbox(channel, readable())
        except SecureFglError as error:  # ours, before any answer ran
            told = {"what": error.what, "why": error.why, "fix": error.fix}
            frames.write(channel, frames.ERROR, json.dumps(told).encode())
            return
        frames.write(channel, frames.CLOSED, b"")
        while (data := frames.read(channel)) is not None:
            kind, content = answers.reply(data)
            frames.write(channel, kind, content)


if __name__ == "__main__":
    serve(os.dup(0))  # standard input becomes nothing when the sandbox is closed

"""A11, canaries: which made-up records trained, and how much privacy loss that proves.

**Who attacks, and what he knows.** Who receives the updates, or the model that is handed out. He
knows all canaries, and nothing of the coins that put them into training: each client draws these
from a secret that its ledger commits to before the run (`protocols.evidence.captures`).

**How.** By loss: how much surer of a canary the model becomes by the update that he read, over all
rounds that he kept; to first order that is the update's projection on the canary's gradient. Of a
model: how sure it is. By span (nodes): A05's score. So the nulls of A05 and of A12's loss are held
here against records that nothing but training tells apart.

**What the numbers mean.** AUC: how often a canary that trained is ranked above one that did not;
0.5 is guessing. Epsilon that is proved: the lower bound that Steinke et al. give for guesses of the
coins in one run, with 95 % confidence; ``prior`` is the epsilon that is claimed. A proof above the
claim falsifies it: FAIL. A PASS reads "not falsified". The ceiling is what right guesses of all
coins would have proved; a claim above it is not tested, and INCONCLUSIVE.

**Claims.** Where training hides single records, a canary is one. Where noise hides a client, a coin
changes its vector: under noise of its own that is the claim; under noise in sums, which compares a
vector with none, it is two steps, so (2 ε, (1 + e^ε) δ) is what is held against the bound.

**Controls.** Prior: guessing; coins are known to nobody. Raw: the unprotected update of the client,
or the model that it makes alone. Null: up to three other clients' updates or models, in which none
of its canaries is; exchangeable by construction, so the null is exact, and only one above chance is
looked for. Coins that are not those committed to, or can be guessed, are broken evidence: nothing
of that run is attacked (`audits.checks.canaries`).

**Who is left out.** A client that never opened its coins is named. Of a model that was handed out
only clients of which an update counted are asked about: nobody else's canaries are in it.

**What it cannot show.** Canaries are not the client's records, and are easier to find than most.
A bound below the claim proves nothing. A secret that somebody knew otherwise leaves no trace.

Sources: Steinke, Nasr and Jagielski, NeurIPS 2023. Isolated nodes as
canaries, and what they are made of, are this project's own (ADR 0072).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from audits.attacks._methods.statistics import Bound, auc, claim
from audits.attacks._shared.material import (
    TRIED,
    UNTAKEN,
    Array,
    Canaries,
    Exposure,
    Material,
    noted,
)
from audits.attacks._shared.models import Claim
from audits.attacks._shared.payloads import over_payloads, read_from, sent
from audits.attacks._shared.records_asked import (
    CanaryTrial,
    Loss,
    Score,
    Span,
    Target,
    bound_of,
    targets,
)
from audits.attacks._shared.rules import Rule
from audits.attacks._shared.span_trials import Spans
from audits.attacks._shared.verdicts import Findings, NotApplicable, Samples

__all__ = ["ATTACK", "CanaryTest"]

AUC = Rule("AUC of canaries that trained against others", 0.05, 0.15, chance=0.5, null_side="above")
PROVED = Rule(
    "epsilon that canaries prove (lower bound)",
    margin=0.0,
    gate=0.15,
    chance=0.0,
    exact=True,
    clients=False,
    claims=True,
)
_MODEL = "P19"
_OTHERS = 3  # clients whose updates or models are the null control
_FEWEST = 3  # canaries of either side at a client that is ranked; a bound picks nobody by coins
_SURE = 0.999  # of the null control: at 95 % one in 20 would prove something by chance
_NONE = "no canaries were put in: the policy has none (canaries: {records: 100})"
_LATE = "the time budget was used up before models were trained for comparison"
_FEW = "two clients with canaries on either side are needed, as controls"
_NOTHING: Mapping[str, Array] = {}
_ALONE = "its canaries are in no model that was handed out, as none of its updates counted"


@dataclass(frozen=True)
class CanaryTest:
    """See the head of this file."""

    id: str = "A11"
    name: str = "dp-canary"
    question: str = "Which made-up records trained, and what does that prove of epsilon?"
    payloads: tuple[str, ...] = ("P01", "P02", "P05", "P06", "P21", _MODEL)
    metric: str = AUC.metric
    margin: float = AUC.margin
    gate: float = AUC.gate
    rules: tuple[Rule, ...] = (AUC, PROVED)
    needs_capture: bool = False

    def run(self, material: Material, rng: np.random.Generator, profile: str) -> Findings:
        """Look for the canaries; see `audits.attacks.Attack`."""
        case, given = material.case, material.canaries
        if given is None:
            asked = case.policy.canaries is not None
            why = material.uncoined or "the canaries of this run cannot be made again here"
            return Findings((NotApplicable(why if asked else _NONE, arises=asked),))
        one = _Asked(material, given, sorted(given.coins), rng)
        if len(given.coins) < one.fewest:
            return Findings((NotApplicable(noted(given, _FEW), arises=True),))
        return Findings((*one.of_messages(), *one.of_models()), tuple(one.claims))


class _Asked:
    """Asks about all canaries of a run.

    Attributes:
        claims: that were held against a bound.
        fewest: clients of a row; at one site there is one, and drawn ones are its controls.
    """

    def __init__(
        self, material: Material, given: Canaries, clients: Sequence[str], rng: np.random.Generator
    ) -> None:
        self._material, self._given, self._clients, self._rng = material, given, clients, rng
        self._targets, self.claims = targets(material.case), list[Claim]()
        self.fewest = 1 if given.controls else 2

    def of_messages(self) -> Iterator[Samples | NotApplicable]:
        """Yield the rows on updates that were read, all kept rounds of a client together."""
        if not self._material.exposures:
            why, unread = self._material.missing, self._material.unread
            yield NotApplicable(why or "no message was captured", what="messages", arises=unread)
            return
        yield from over_payloads(self._material, self._of_payload).rows

    def _of_payload(self, payload: str, there: Sequence[Exposure]) -> list[Samples | NotApplicable]:
        rounds = dict[int, dict[str, Exposure]]()
        for one in there:
            rounds.setdefault(one.round, {})[one.client] = one
        whole = {n: found for n, found in rounds.items() if len(found) > 1}
        clients = [c for c in self._clients if any(c in found for found in whole.values())]
        seen = read_from(payload, "its own messages", "totals over the cohort")
        if len(clients) < self.fewest:
            return [NotApplicable(_FEW, payload, f"canaries of a client, from {seen}", arises=True)]
        found = list[Samples | NotApplicable]()
        for how, score in self._scores().items():
            trials = [self._trial(client, whole, score) for client in clients]
            made = [trial for trial in trials if trial is not None]
            if len(made) < len(trials):
                why = "the messages change no whole model, so nobody can ask it about a canary"
                found.append(NotApplicable(why, payload, f"canaries, by {how}", arises=True))
                continue
            what = f"canaries of a client, from {seen}, by {how}"
            found += self._rows(payload, what, made, sorted(whole), held=how == "loss")
        return found

    def _scores(self) -> dict[str, Score]:
        found: dict[str, Score] = {"loss": Loss(self._given)}
        layers = self._material.layers
        if layers is not None and layers.first is not None and self._given.features:
            found["span"] = Span(self._given, Spans(layers))
        return found

    def _trial(
        self, client: str, rounds: Mapping[int, Mapping[str, Exposure]], score: Score
    ) -> CanaryTrial | None:
        """Return a client's scores, summed over the rounds in which it is; None: there are none."""
        own = [found for found in rounds.values() if client in found]
        others = sorted({name for found in own for name in found} - {client})
        others = [others[n] for n in self._rng.permutation(len(others))[:_OTHERS]]
        seen = score.summed(client, [(f[client], f[client].seen or _NOTHING) for f in own])
        raw = score.summed(client, [(f[client], f[client].raw) for f in own])
        nulls = [
            score.summed(client, [(f[client], f[name].raw) for f in own if name in f])
            for name in others
        ]
        if seen is None or raw is None or any(null is None for null in nulls):
            return None
        return CanaryTrial(client, seen, raw, tuple(null for null in nulls if null is not None))

    def of_models(self) -> Iterator[Samples | NotApplicable]:
        """Yield the rows on models that were handed out."""
        released = self._material.released
        out = _MODEL in sent(self._material.case.plan, self._material.case.policy)
        if released is None or not (released.shared or released.own):
            why = self._material.unreleased or (released.unshared if released else "")
            yield NotApplicable(why or "no model could be looked at", _MODEL, arises=out)
            return
        late = self._material.late()
        if late:
            yield NotApplicable(_LATE, _MODEL, arises=True)
            return
        names = (*self._clients, *self._given.controls)
        alone = {c: self._given.alone(c, int(self._rng.integers(2**62))) for c in names}
        inside = [c for c in self._clients if c in self._given.arrived]
        asked = {
            f"the {name} model": dict.fromkeys(inside, m) for name, m in released.shared.items()
        }
        doubts = {f"the {name} model": UNTAKEN for name in released.untaken}
        own = {c: released.own[c] for c in self._clients if c in released.own}
        if len(own) >= self.fewest:
            asked["a client's own model"] = own
        for name, models in asked.items():
            what = f"canaries of a client, from {name}"
            if len(models) < self.fewest:
                yield NotApplicable(_FEW if inside else _ALONE, _MODEL, what, arises=True)
                continue
            trials = [self._of_model(client, models[client], alone) for client in models]
            held = models is not own and not self._given.controls  # else it stays at its site
            for row in self._rows(_MODEL, what, trials, (), held=held):
                doubt = doubts.get(name, "")
                yield replace(row, doubt=doubt) if isinstance(row, Samples) else row

    def _of_model(self, client: str, model: object, alone: Mapping[str, object]) -> CanaryTrial:
        sure, names = self._given.confidence, [name for name in alone if name != client]
        others = [names[n] for n in self._rng.permutation(len(names))[:_OTHERS]]
        seen, raw = sure(model, client), sure(alone[client], client)
        return CanaryTrial(client, seen, raw, tuple(sure(alone[name], client) for name in others))

    def _rows(
        self,
        payload: str,
        what: str,
        trials: Sequence[CanaryTrial],
        rounds: Sequence[int],
        *,
        held: bool,
    ) -> list[Samples | NotApplicable]:
        """Return the row of ranks and, where something is claimed, the rows that hold it."""
        coins = [self._given.coins[t.client] for t in trials]
        rows: list[Samples | NotApplicable] = [self._ranked(payload, what, trials, rounds)]
        for target in self._targets if held else ():
            bounds = [
                bound_of(scores, coins, target.delta, confidence=sure)
                for scores, sure in (
                    ([t.seen for t in trials], 0.95),
                    ([t.raw for t in trials], 0.95),
                    ([t.nulls[0] for t in trials], _SURE),
                )
            ]
            rows.append(self._proved(payload, what, target, bounds, rounds))
        return rows

    def _ranked(
        self, payload: str, what: str, trials: Sequence[CanaryTrial], rounds: Sequence[int]
    ) -> Samples | NotApplicable:
        def area(client: str, scores: Array) -> float:
            return auc(scores[heads[client]], scores[~heads[client]])

        heads, bare = self._given.coins, self._bare(trials)
        trials = [t for t in trials if _FEWEST <= heads[t.client].sum() <= len(t.seen) - _FEWEST]
        if len(trials) < self.fewest:
            return NotApplicable(_FEW, payload, what, arises=True)
        null = np.array([np.mean([area(t.client, one) for one in t.nulls]) for t in trials])
        return Samples(
            payload=payload,
            what=what,
            units=tuple(t.client for t in trials),
            rounds=tuple(rounds),
            prior=np.full(len(trials), AUC.chance),
            raw=np.array([area(t.client, t.raw) for t in trials]),
            null=null,
            protected=np.array([area(t.client, t.seen) for t in trials]),
            positives=sum(int(heads[t.client].sum()) for t in trials),
            negatives=sum(int((~heads[t.client]).sum()) for t in trials),
            note=noted(self._given, f"One-run bound without a claim: {bare}"),
            **AUC.given(),
        )

    def _bare(self, trials: Sequence[CanaryTrial]) -> str:
        coins = [self._given.coins[t.client] for t in trials]
        found = bound_of([t.seen for t in trials], coins, 0.0)
        return f"epsilon at least {found.epsilon:.3g} at delta 0, ceiling {found.ceiling:.3g}"

    def _proved(
        self,
        payload: str,
        what: str,
        target: Target,
        bounds: Sequence[Bound],
        rounds: Sequence[int],
    ) -> Samples:
        seen, raw, null = bounds
        able = raw.epsilon - target.epsilon >= PROVED.gate
        if able or seen.epsilon > target.epsilon:
            text = f"{target.text}; {what}, {seen.trials}{TRIED}"
            self.claims.append(claim(text, target.epsilon, target.unit, seen, able=able))
        note = (
            f"{target.text}; proved at 95 %: {seen.epsilon:.4g}, ceiling of right guesses: "
            f"{seen.ceiling:.4g}; a bound below a claim proves nothing"
        )
        return Samples(
            payload=payload,
            what=f"{what}: {target.unit}",
            units=(target.unit,),
            rounds=tuple(rounds),
            prior=np.array([target.epsilon]),
            raw=np.array([raw.epsilon]),
            null=np.array([null.epsilon]),
            protected=np.array([seen.epsilon]),
            positives=seen.trials,
            negatives=seen.trials,
            note=noted(self._given, note),
            bounds=(0.0, np.inf),
            **PROVED.given(),
        )


ATTACK = CanaryTest()

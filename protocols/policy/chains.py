"""Chains: which guards, in which order, protect each disclosure. Any other is refused."""

from __future__ import annotations

from collections.abc import Callable

from protocols.disclosures.match.guards import Match
from protocols.disclosures.mixed.guards import Blur, Mix
from protocols.disclosures.names import Disclosure
from protocols.disclosures.noised.guards import Laplace
from protocols.policy.guards import Clip, Guard, Quantise, evaluated, find
from protocols.policy.stages import Stage

__all__ = ["PROTECTING", "check_chain"]

# What must stand in a chain before the receiver is kept to the disclosure. NOISED has no
# protecting guard yet: a policy can name it only with the unsafe one.
_UNSAFE_ONLY = frozenset({"unsafe_clear"})
PROTECTING: dict[Disclosure, frozenset[str]] = {
    Disclosure.SUM: frozenset({"he", "ckks", "mask", "unsafe_clear"}),
    Disclosure.WEIGHTED_SUM: frozenset({"weigh", "unsafe_clear"}),
    Disclosure.SIMILARITY: frozenset({"cosine", "unsafe_clear"}),
    Disclosure.MATCH: frozenset({"match", "unsafe_clear"}),
    Disclosure.MIXED: frozenset({"mix", "unsafe_clear"}),
    Disclosure.NOISED: _UNSAFE_ONLY,
    Disclosure.SEALED: frozenset({"seal"}),
    Disclosure.RELEASED: frozenset({"seal"}),
    Disclosure.PUBLIC: frozenset({"sign"}),
}


def check_chain(disclosure: Disclosure, chain: tuple[Guard, ...]) -> None:
    """Raise ValueError unless `chain` is a complete, ordered protection of `disclosure`."""
    if not chain:
        raise ValueError(f"the chain for {disclosure} is empty; an empty chain protects nothing")
    present = {guard.guard for guard in chain}
    if "noise" in present and "mask" not in present:
        # Alone, each upload would carry one share of the noise, and epsilon would be larger.
        raise ValueError(f"{disclosure}: 'noise' needs 'mask' after it: it is shared by the sum")
    stage = Stage.VALUE
    for guard in chain:
        if stage not in guard.takes:
            raise ValueError(
                f"{disclosure}: '{guard.guard}' cannot follow a value of stage {stage.name}; the "
                "order is clip, quantise, noise, mask, he or ckks, seal; or clip, mix, blur, "
                "relay, seal; or clip, quantise, match, seal; or clip, laplace, match, unsafe_clear"
            )
        stage = guard.gives
    if stage is not Stage.ENVELOPE:
        raise ValueError(f"{disclosure}: the chain must end in 'seal', 'sign' or 'unsafe_clear'")
    if not present & PROTECTING[disclosure]:
        raise ValueError(
            f"{disclosure}: nothing in the chain keeps the receiver to '{disclosure.meaning}'; "
            f"needed: one of {', '.join(sorted(PROTECTING[disclosure]))}"
        )
    if disclosure is Disclosure.SUM and "quantise" not in present:
        raise ValueError("SUM: 'clip' and 'quantise' are needed: sums are sums of integers")
    clip = find(chain, "clip")
    if "noise" in present and not (isinstance(clip, Clip) and clip.norm == "l2"):
        raise ValueError(f"{disclosure}: 'noise' needs 'clip' with norm l2 before it (O14)")
    if evaluated(chain) is not None:
        _check_evaluated(disclosure, chain)
    elif special := [check for names, check in _SPECIAL if present & names]:
        special[0](disclosure, chain)
    elif disclosure is not Disclosure.SUM and len(chain) != 1:
        raise ValueError(
            f"{disclosure}: '{chain[0].guard}' would not be applied to it; "
            f"give exactly one guard, one of {', '.join(sorted(PROTECTING[disclosure]))}"
        )


_EVALUATED = {
    Disclosure.SIMILARITY: ("normalise", "cosine", "seal"),
    Disclosure.WEIGHTED_SUM: ("clip", "quantise", "weigh", "seal"),
}


def _check_evaluated(disclosure: Disclosure, chain: tuple[Guard, ...]) -> None:
    """Hold what is computed on ciphertexts to its one chain; raises ValueError."""
    wanted = _EVALUATED.get(disclosure, ())
    if tuple(guard.guard for guard in chain) != wanted:
        raise ValueError(f"{disclosure}: needed are exactly {', '.join(wanted) or 'other guards'}")
    quantise = find(chain, "quantise")
    if isinstance(quantise, Quantise) and quantise.bits > _WEIGHED_BITS:
        raise ValueError(
            f"{disclosure}: 'quantise' takes at most {_WEIGHED_BITS} bits where integers are "
            "weighed: a coefficient must hold a whole row of weights times the largest of them"
        )


def _check_mixed(disclosure: Disclosure, chain: tuple[Guard, ...]) -> None:
    """Hold what is mixed to its chain; raises ValueError."""
    named = [guard.guard for guard in chain]
    bare = [name for name in named if name not in ("blur", "relay")]
    if disclosure is not Disclosure.MIXED or bare != _MIXED:
        needed = f"{', '.join(_MIXED)}, and 'blur' or 'relay' before 'seal'"
        raise ValueError(f"{disclosure}: needed are {needed}")
    clip, mix, blur = (find(chain, name) for name in ("clip", "mix", "blur"))
    if not isinstance(clip, Clip) or clip.norm != "l2":
        raise ValueError("MIXED: 'mix' needs 'clip' with norm l2 before it: a record is one vector")
    if isinstance(mix, Mix) and isinstance(blur, Blur):
        blur.steps(mix)


def _check_matched(disclosure: Disclosure, chain: tuple[Guard, ...]) -> None:
    """Hold what is matched to its one chain; raises ValueError."""
    match, quantise = find(chain, "match"), find(chain, "quantise")
    if not isinstance(match, Match):
        raise ValueError(f"{disclosure}: 'match' is missing")
    published = match.form == "published"
    wanted = _PUBLISHED if published else [*_MATCHED, "unsafe_clear" if match.unsafe else "seal"]
    if disclosure is not Disclosure.MATCH or [g.guard for g in chain] != wanted:
        of = f"MATCH, form '{match.form}', mode '{match.mode}'"
        raise ValueError(f"{disclosure}: needed are exactly {', '.join(wanted)}, for {of}")
    if published:
        _check_published(chain)
        return
    bits = quantise.bits if isinstance(quantise, Quantise) else 0
    if 2 * match.cell >> (32 - bits):
        raise ValueError("MATCH: 'quantise' has too many bits: cells add up in 32 bits")


def _check_published(chain: tuple[Guard, ...]) -> None:
    """Hold the noise on vectors that strangers read to one with an epsilon; raises ValueError."""
    clip, noise = find(chain, "clip"), find(chain, "laplace")
    if not isinstance(clip, Clip) or clip.norm != "linf":
        raise ValueError("MATCH: 'laplace' needs 'clip' with norm linf before it")
    if not isinstance(noise, Laplace) or noise.how != "fixed":
        raise ValueError("MATCH: 'laplace' is fixed: a scale that follows the data has no epsilon")
    noise.steps(clip.bound)


def _check_rows(disclosure: Disclosure, chain: tuple[Guard, ...]) -> None:
    """Hold a chain with decoys or local noise to what is applied; raises ValueError."""
    if disclosure is not Disclosure.NOISED:
        raise ValueError(f"{disclosure}: 'decoys' and 'laplace' are for NOISED messages alone")
    named, clip = [guard.guard for guard in chain], find(chain, "clip")
    if [n for n in named if n not in ("decoys", "laplace")] != ["clip", "unsafe_clear"]:
        raise ValueError("NOISED: needed are clip, 'decoys' or 'laplace' or both, unsafe_clear")
    if not isinstance(clip, Clip) or clip.norm != "linf":
        raise ValueError("NOISED: 'decoys' and 'laplace' need 'clip' with norm linf before them")
    noise = find(chain, "laplace")
    if isinstance(noise, Laplace) and noise.how == "fixed":
        noise.steps(clip.bound)


_MIXED = ["clip", "mix", "seal"]
_MATCHED = ["clip", "quantise", "match"]
_PUBLISHED = ["clip", "laplace", "match", "unsafe_clear"]
_WEIGHED_BITS = 15  # two values a coefficient; more would double what every party sends
_SPECIAL: tuple[tuple[set[str], Callable[[Disclosure, tuple[Guard, ...]], None]], ...] = (
    ({"mix"}, _check_mixed),
    ({"match"}, _check_matched),
    ({"decoys", "laplace"}, _check_rows),
)

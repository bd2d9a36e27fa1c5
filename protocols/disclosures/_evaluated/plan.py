"""The plan items of what is computed on ciphertexts, recomputed by witnesses, and then opened."""

from __future__ import annotations

from collections.abc import Sequence

from crypto.signing.signatures import SIGNATURE_BYTES
from protocols.disclosures._evaluated.ciphers import Shape, shape_of
from protocols.disclosures._evaluated.guards import evaluated
from protocols.disclosures.names import Disclosure
from protocols.messages import Message
from protocols.plan.builder import PlanBuilder, Times
from protocols.plan.steps import Step
from protocols.wire.control import (
    Cosines,
    CosineSeed,
    Examine,
    Reveal,
    RowBoxes,
    RowSeeds,
    SignedCut,
    Witnessed,
)
from protocols.wire.envelope import header_bytes
from protocols.wire.roles import Role

_CLIENT, _AGGREGATOR = str(Role.CLIENT), str(Role.AGGREGATOR)
_AUTHORITY, _WITNESS = str(Role.KEY_AUTHORITY), str(Role.WITNESS)
_SEALED = Disclosure.SEALED


def plan_upload(
    planner: PlanBuilder, name: str, kinds: Sequence[type[Message]], times: Times
) -> Shape:
    """Add the upload of one evaluated message: a signature and ciphertexts."""
    disclosure = kinds[0].disclosure
    shape = shape_of(kinds, planner.policy, planner.dims)
    size = SIGNATURE_BYTES + shape.upload_bytes
    route = (_CLIENT, _AGGREGATOR)
    planner.add(
        name, disclosure, Step.UP, route, kinds, disclosure, times,
        body=size, layout=shape.layout,
    )  # fmt: skip
    return shape


def plan_results(
    planner: PlanBuilder,
    name: str,
    upload: str,
    shape: Shape,
    times: Times,
    *,
    signs: bool = False,
) -> None:
    """Add what it takes to open the results that are computed from one Ask's uploads.

    Args:
        planner: collects the items.
        name: of the exchange that has them opened.
        upload: id of the item that brings the uploads.
        shape: of one upload.
        times: of the exchange.
        signs: the key authority signs how the cosines cut the cluster.
    """
    clients, disclosure = len(planner.clients), shape.disclosure
    guard = evaluated(planner.policy.chain(disclosure))
    witnesses = guard.witnesses if guard is not None else 0
    often = planner.often(times)  # disjoint clusters may be compared and weighed one by one
    cosines = disclosure is Disclosure.SIMILARITY
    header = header_bytes(upload, planner.longest, planner.name(_AGGREGATOR))
    dims = {
        "upload_headers": clients * (2 + header + SIGNATURE_BYTES),
        "uploads": clients * shape.upload_bytes,
        "results": shape.results(clients) * shape.result_bytes,
        "witnesses": witnesses,
        "pairs": shape.results(clients),
        "row_boxes": clients * shape.row_bytes if not cosines else 0,
    }

    def add(
        step: Step,
        route: tuple[str, str],
        kinds: tuple[type[Message], ...],
        names: tuple[str, ...],
        said: dict[str, str],
    ) -> None:
        chosen = {key: dims[key] for key in names}
        planner.add(name, disclosure, step, route, kinds, _SEALED, often, dims=chosen, said=said)

    if witnesses:
        seeds = CosineSeed if cosines else RowSeeds
        said = {"witness": _SHOWN[disclosure], "network": "sender, recipient, time and size"}
        route, sizes = (_AGGREGATOR, _WITNESS), ("upload_headers", "uploads")
        add(Step.WITNESS, route, (Examine, seeds), sizes, said)
        said = {"aggregator": "that the witness computed the same bytes"}
        add(Step.WITNESSED, (_WITNESS, _AGGREGATOR), (Witnessed,), (), said)
    sizes3 = ("upload_headers", "results", "witnesses")
    said = {"key_authority": _OPENER[disclosure]}
    add(Step.OPEN, (_AGGREGATOR, _AUTHORITY), (Reveal,), sizes3, said)
    kinds: tuple[type[Message], ...] = (Cosines,) if cosines else (RowBoxes,)
    kinds += (SignedCut,) if signs else ()
    said = {"aggregator": disclosure.meaning if cosines else "size only"}
    if not cosines:
        said["addressee"] = "its own row, still blinded"
    route = (_AUTHORITY, _AGGREGATOR)
    add(Step.OPENED, route, kinds, ("pairs",) if cosines else ("row_boxes",), said)


_SHOWN = {
    Disclosure.SIMILARITY: "who took part; ciphertexts, and no value in them",
    Disclosure.WEIGHTED_SUM: "the weights of every receiver, and so roughly the cosines where they "
    "are computed from them; ciphertexts, and no value in them",
}
_OPENER = {
    Disclosure.SIMILARITY: "the matrix of pairwise cosines to about 2^-20, and who took part when",
    Disclosure.WEIGHTED_SUM: "uniform noise, how alike two receivers' weights are (all weights "
    "where they are computed from cosines, which it opened), and who took part when",
}

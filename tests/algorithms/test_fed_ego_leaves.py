"""What of FedEgo leaves a client: no label of a test node, no layer that one client trained."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from algorithms._shared.ego import (
    Labels,
    Mashed,
    Reduction,
)
from algorithms.tasks import Site
from algorithms.tasks.ego import EgoTask
from protocols.messages import unmixed_of
from tests.algorithms.fed_ego_tools import (
    PASSES,
    begun,
    ego,
    exchange,
    only,
    rounds,
    small,
    step_of,
    task,
    told,
    trained,
)
from tests.laws.search import found, spellings
from tests.toys.kinds import sites_of

# --- what leaves ----------------------------------------------------------------------------------


def relabelled(site: Site, role: str) -> Site:
    """Return a site with other labels on the nodes of a role."""
    data = site.data
    y = data.y.clone()
    y[getattr(data, role)] = (y[getattr(data, role)] + 1) % 3
    return Site(replace(data, y=y, kept={}), seed=0)


def uploads(model: EgoTask, site: Site) -> list[bytes]:
    """Return all that a client says in both forms, over two rounds, and what it could only mix."""
    algorithm, said = ego(model), []
    begin = begun(algorithm).start
    later = told(model, [0.2, 0.3, 0.5])
    for start in (begin, later):
        said += exchange(algorithm, "mixup", "train_and_mix")(site, start)
        said += exchange(algorithm, "no_ego_upload", "train")(site, start)
        for number in range(PASSES):
            step = step_of(begin.phi, start.step, number)
            said += exchange(algorithm, "no_ego_upload", "slope")(site, step)
    parts = []
    for message in said:
        if isinstance(message, Mashed):
            records: Any = unmixed_of(message)
            parts += [records.table, records.index, records.label]
        else:
            parts += [getattr(message, field.name) for field in message.fields]
    return [np.asarray(part).tobytes() for part in parts]


@pytest.mark.parametrize("role", ["val", "test"])
def test_labels_of_held_out_nodes_appear_in_no_upload(role: str) -> None:
    model = task(dropout=0.3)
    plain, other = (uploads(model, s) for s in (relabelled_not(), relabelled(first(), role)))
    assert plain == other


def test_labels_of_training_nodes_do_change_uploads() -> None:
    """Control: the comparison above can fail."""
    model = task(dropout=0.3)
    plain, other = (uploads(model, s) for s in (relabelled_not(), relabelled(first(), "train")))
    assert len(plain) == len(other) and plain != other


def first() -> Site:
    return sites_of("node")[0]


def relabelled_not() -> Site:
    return Site(first().data, seed=0)


def test_only_the_label_of_a_centre_is_said() -> None:
    model, site = task(), first()
    _, message = exchange(ego(model), "mixup", "train_and_mix")(site, begun(ego(model)).start)
    records: Any = unmixed_of(message)
    egos = model.egos(site)
    np.testing.assert_array_equal(records.label, egos.label)
    np.testing.assert_array_equal(records.index, egos.places)
    assert records.label.shape == (12,) and records.index.shape == (12, 7)


def test_class_counts_are_said_once_a_run_whatever_the_aggregator_asks() -> None:
    model, site = task(), first()
    algorithm = ego(model)
    begin = begun(algorithm).start
    exchange(algorithm, "no_ego_upload", "train")(site, begin)
    answer = exchange(algorithm, "no_ego_upload", "slope")
    seen = {}
    for again in (0, 1):
        for step in (0, 1, 2):
            for number in range(PASSES):
                _, labels = answer(site, step_of(begin.phi, step, number))
                assert isinstance(labels, Labels)
                seen[again, step, number] = labels.counts.sum()
    assert seen.pop((0, 0, 0)) == 12 and not any(seen.values())


@pytest.mark.parametrize("policy", [small(), "strict"])
def test_no_reduction_layer_and_no_embedding_crosses_the_wire_in_clear(policy: Any) -> None:
    """O11, at the wire; the sealed combination is closed to the aggregator in both forms."""
    hidden, bare = leaked(policy), leaked("unsafe_plaintext")
    assert hidden == 0
    assert bare > 0  # control: in clear they are found


def leaked(policy: Any) -> int:
    """Return how much of Theta_i, of their mean and of embeddings a wiretap finds in a round."""
    model, sites = task(), sites_of("node")
    played = rounds(1, sites, ego(model), policy)
    wire = b"".join(data for _, data in played.tap.sent)
    secrets = [site.memory[name] for site in sites for name in ("trained", "theta")]
    secrets = [secret[: model.reduction] for secret in secrets]
    secrets.append(trained(sites).sum(axis=0)[: model.reduction].astype(np.float32))
    secrets += [model.reduce(site.memory["trained"], site) for site in sites]
    return found([spelt for secret in secrets for spelt in spellings(secret)], wire)


@pytest.mark.parametrize("form", ["mixup", "no_ego_upload"])
def test_the_aggregator_cannot_read_reduction_layers(form: str) -> None:
    algorithm = only(ego(), form)
    tried: list[str] = []
    inner = algorithm.forms[0].round

    def curious(state: Any, cohort: Any) -> Any:
        steps = inner(state, cohort)
        ask = next(steps)
        while True:
            reply = yield ask
            if Reduction in ask.wanted:
                for verb in ("total", "each", "similarity", "handed"):
                    with pytest.raises(TypeError, match="not allowed"):
                        getattr(reply, verb)(Reduction)
                    tried.append(verb)
            try:
                ask = steps.send(reply)
            except StopIteration as stop:
                return stop.value

    curious_one = replace(algorithm, forms=(replace(algorithm.forms[0], round=curious),))
    rounds(1, sites_of("node"), curious_one)
    assert len(tried) == 4

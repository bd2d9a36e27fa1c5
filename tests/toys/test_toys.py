"""The nouns carry every disclosure: each toy equals the same computation done in numpy."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from algorithms.tasks import Site
from crypto.errors import CryptoError
from crypto.hpke import SEAL_OVERHEAD
from protocols.disclosures.names import Disclosure
from protocols.errors import NotAdmitted
from protocols.evidence.ledger import read_lines
from protocols.forms import Algorithm, Form
from protocols.keys.pairs import _info, box_bytes
from protocols.messages import Message, PublicMessage, ReleasedMessage, count, real
from protocols.policy.policy import PRESETS, PrivacyPolicy
from protocols.rounds import Ask, Cohort, EachT, Round
from protocols.wire.envelope import Envelope, commitment
from tests.toys import sealed as sealed_file
from tests.toys import weighted_sum as weighted_file
from tests.toys.match import match
from tests.toys.mixed import mixed
from tests.toys.noised import noised
from tests.toys.sealed import MODULUS, sealed
from tests.toys.similarity import similarity
from tests.toys.stage import Played, plan_of, play
from tests.toys.weighted_sum import softmax, weighted_sum

RNG = np.random.default_rng(20)
CONTROLS = (Disclosure.SEALED, Disclosure.RELEASED, Disclosure.PUBLIC)


def sites(*records: dict[str, Any]) -> list[Site]:
    return [Site(SimpleNamespace(**r), seed=i) for i, r in enumerate(records)]


def memories(played: Played, name: str) -> list[Any]:
    clients: list[Any] = [played.parties.others[c] for c in played.parties.roster.clients]
    return [session._site.memory[name] for session in clients]


# --- WEIGHTED_SUM with SIMILARITY ---------------------------------------------------------------


@pytest.fixture(scope="module")
def fed_pub() -> tuple[list[dict[str, Any]], Played]:
    data = [
        {"weights": RNG.normal(size=7), "bias": float(RNG.normal()), "outputs": RNG.normal(size=3)}
        for _ in range(5)
    ]
    return data, play(weighted_sum(d=7, p=3), sites(*data), rounds=2)


def test_each_client_receives_its_own_weighted_combination(
    fed_pub: tuple[list[dict[str, Any]], Played],
) -> None:
    data, played = fed_pub
    rows = np.stack([r["outputs"] for r in data])
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    alpha = softmax(3.0 * rows @ rows.T)
    assert np.ptp(alpha) > 0.05  # the weights differ, so a mean would not pass for them
    weights, biases = zip(*memories(played, "personal"), strict=True)
    np.testing.assert_allclose(weights, alpha @ np.stack([r["weights"] for r in data]), rtol=1e-12)
    np.testing.assert_allclose(biases, alpha @ np.array([r["bias"] for r in data]), rtol=1e-12)
    assert played.state.step == 2


def test_the_personal_models_never_reach_the_round(
    fed_pub: tuple[list[dict[str, Any]], Played],
) -> None:
    data, _ = fed_pub
    seen: list[Any] = []
    algorithm = weighted_sum(d=7, p=3)
    (form,) = algorithm.forms

    def spy(state: Any, cohort: Cohort) -> Round[Any]:
        reply = yield Ask(cohort, given=state, back=(weighted_file.Model, weighted_file.Portrait))
        for verb in ("total", "each", "similarity"):
            with pytest.raises(TypeError):
                getattr(reply, verb)(weighted_file.Model)
        token = reply.weighted(weighted_file.Model, np.full((5, 5), 0.2))
        seen.append(repr(token))
        yield Ask(cohort, given=token)
        return state

    play(replace(algorithm, forms=(Form(form.name, spy, form.exchanges),)), sites(*data))
    assert seen == ["<Sealed Model>"]


# --- SIMILARITY with clusters -------------------------------------------------------------------


def two_camps() -> list[dict[str, Any]]:
    pull = RNG.uniform(0.1, 0.2, size=6)
    return [
        {"change": (pull if i in (0, 2, 3, 6) else -pull) + RNG.normal(0, 0.01, size=6)}
        for i in range(8)
    ]


@pytest.mark.parametrize("policy", ["unsafe_plaintext", "he_and_unsafe_similarity"])
def test_clusters_are_summed_apart(policy: str) -> None:
    data = two_camps()
    rules = PrivacyPolicy.preset("unsafe_plaintext").rules
    if policy != "unsafe_plaintext":
        rules = {**rules, **PrivacyPolicy.preset("he").rules}
    chosen = PrivacyPolicy(name=policy, rules=rules)
    played = play(similarity(d=6), sites(*data), chosen, rounds=2)
    changes = np.stack([r["change"] for r in data])
    first = changes @ changes[0] > 0
    assert 0 < first.sum() < 8
    step = 0.5 / (2**15 - 1)  # the grid's: clip 0.5, 16 bits
    for centre, members in zip(played.state, (first, ~first), strict=True):
        np.testing.assert_allclose(centre.weights, changes[members].mean(axis=0), atol=step)
    openings = played.tap.envelopes("train.open")
    assert len(openings) == (0 if policy == "unsafe_plaintext" else 2 * 2 * 2)


def test_a_cluster_below_the_minimum_cohort_is_not_opened() -> None:
    data = two_camps()
    for lonely in data[1:4]:
        lonely["change"] = data[0]["change"]  # six against two
    with pytest.raises(Exception, match="cohort of 2 is too small"):
        play(similarity(d=6), sites(*data[:4], *two_camps()[4:6], data[0], data[0]))


# --- the same under encryption ------------------------------------------------------------------


@pytest.mark.parametrize("policy", ["pilot", "masks"])
def test_personal_models_under_encryption_are_those_in_clear(policy: str) -> None:
    rng = np.random.default_rng(0)
    pull = rng.normal(size=3)  # all alike enough that no row of weights is flattened
    data = [
        {
            "weights": rng.normal(size=7),
            "bias": float(rng.normal()),
            "outputs": pull + rng.normal(0, 0.4, size=3),
        }
        for _ in range(8)
    ]
    bare, protected = (
        memories(play(weighted_sum(d=7, p=3, tau=2.0), sites(*data), name, rounds=2), "personal")
        for name in ("unsafe_plaintext", policy)
    )
    # Weights are rounded to 1/128: these models differ by 0.016, and noise of cosines moves one.
    for (one, first), (other, second) in zip(bare, protected, strict=True):
        np.testing.assert_allclose(one, other, atol=8 * 3 / 256)
        np.testing.assert_allclose(first, second, atol=8 * 3 / 256)


def test_the_same_clusters_are_found_under_encryption() -> None:
    data = two_camps()
    bare, protected = (
        play(similarity(d=6), sites(*data), name, rounds=2).state
        for name in ("unsafe_plaintext", "pilot")
    )
    for one, other in zip(bare, protected, strict=True):
        np.testing.assert_allclose(one.weights, other.weights, atol=0.5 / (2**15 - 1))


# --- MATCH --------------------------------------------------------------------------------------


def test_matched_rows_come_from_others_under_own_keys() -> None:
    items = np.array([[3, 5, 9, 0], [5, 7, 0, 0], [9, 3, 1, 2], [8, 0, 0, 0], [4, 6, 5, 0]])
    data = [
        {"items": row, "embedding": RNG.normal(size=(4, 2)) * (row > 0)[:, None]} for row in items
    ]
    played = play(match(slots=4, places=6, e=2), sites(*data))
    for me, (rows, embeddings) in enumerate(memories(played, "neighbours")):
        wanted = sorted(
            (mine + 1, *data[peer]["embedding"][theirs])
            for mine, key in enumerate(items[me])
            for peer in range(5)
            for theirs in range(4)
            if peer != me and key and items[peer][theirs] == key
        )
        found = sorted((int(r), *v) for r, v in zip(rows, embeddings, strict=True) if r)
        assert found == wanted
        assert not embeddings[rows == 0].any()
    assert [int((rows > 0).sum()) for rows, _ in memories(played, "neighbours")] == [4, 2, 2, 0, 2]


def test_more_matches_than_places_are_not_dropped_in_silence() -> None:
    data = [{"items": np.array([1, 2]), "embedding": np.ones((2, 1))} for _ in range(5)]
    with pytest.raises(Exception, match=r"places|more matches"):
        play(match(slots=2, places=3, e=1), sites(*data))  # eight matches, three places


# --- MIXED and NOISED ---------------------------------------------------------------------------


def mixed_data(members: int = 40, places: int = 3, f: int = 4) -> list[dict[str, Any]]:
    found = []
    for _ in range(5):
        index = np.stack([RNG.permutation(members) for _ in range(places)], axis=1)
        table, label = RNG.normal(size=(members, f)), RNG.integers(2, size=members)
        found.append({"table": table, "index": index, "label": label})
    return found


@pytest.mark.parametrize("policy", ["unsafe_plaintext", "masks"])
def test_mixtures_arrive_and_their_order_tells_no_sender(policy: str) -> None:
    data = mixed_data()
    wanted = np.concatenate([r["table"] for r in data]).mean(axis=0)
    shares = np.bincount(np.concatenate([r["label"] for r in data])) / 200
    orders = set()
    for turn in range(3):
        toy = mixed(group=40, places=3, f=4, c=2)
        turned = sites(*data[turn:], *data[:turn])
        played = play(toy, turned, policy, plan=plan_of(toy, PRESETS[policy], 5, 1, records=64))
        # The step of the grid, 16 / 32767, or none.
        np.testing.assert_allclose(played.state.mean, wanted, atol=5e-4)
        np.testing.assert_allclose(played.state.shares, shares, atol=5e-5)
        orders.add(played.state.mean.tobytes())
    if policy == "unsafe_plaintext":
        assert len(orders) == 1  # the order is the content's, whoever sent it


def test_each_noised_message_arrives() -> None:
    data = [{"norm": float(norm), "steps": 3} for norm in (0.5, 4.25, 2.0, 1.5)]
    played = play(noised(), sites(*data), rounds=2)
    assert (played.state.largest, played.state.smallest) == (4.25, 0.5)


# --- SEALED -------------------------------------------------------------------------------------


def shares(policy: str) -> tuple[np.ndarray[Any, Any], Played]:
    numbers = RNG.integers(MODULUS, size=(5, 3))
    data = [{"number": n, "index": i, "clients": 5} for i, n in enumerate(numbers)]
    return numbers, play(sealed(k=3), sites(*data), policy, rounds=2)


@pytest.mark.parametrize("policy", ["unsafe_plaintext", "he"])
def test_shares_cross_and_only_their_sum_is_seen(policy: str) -> None:
    numbers, played = shares(policy)
    np.testing.assert_array_equal(played.state.value, numbers.sum(axis=0) % MODULUS)
    received = memories(played, "received")
    kept = memories(played, "kept")
    for me, (share, note) in enumerate(received):
        np.testing.assert_array_equal(note, 100.0 * np.arange(5) + me)
        np.testing.assert_array_equal(share, np.stack([k[me] for k in kept]))


@pytest.mark.parametrize("policy", ["unsafe_plaintext", "he"])
def test_a_row_opens_for_its_addressee_and_for_nobody_else(policy: str) -> None:
    _, played = shares(policy)
    parties, dims = played.parties, {**played.plan.dims}
    size = box_bytes(sealed_file.Share, dims)
    assert size > SEAL_OVERHEAD
    for envelope in played.tap.envelopes("split.up.SEALED"):
        header = envelope.header
        for row, name in enumerate(parties.roster.clients):
            box = envelope.body[row * size : (row + 1) * size]
            info = _info(parties.run, header.exchange, header.item, header.sender, name)
            assert len(parties.identities[name].opening.open(info, box)) == size - SEAL_OVERHEAD
            for other in parties.identities:
                if other != name:
                    with pytest.raises(CryptoError):
                        parties.identities[other].opening.open(info, box)


# --- all of them --------------------------------------------------------------------------------


def everything() -> dict[str, tuple[Algorithm[Any], list[Site]]]:
    return {
        "weighted_sum": (
            weighted_sum(d=4, p=2),
            sites(*({"weights": np.ones(4), "bias": 1.0, "outputs": np.ones(2)},) * 5),
        ),
        "similarity": (similarity(d=6), sites(*two_camps())),
        "match": (
            match(slots=2, places=8, e=1),
            sites(*({"items": np.array([1, 2]), "embedding": np.ones((2, 1))},) * 5),
        ),
        "mixed": (
            mixed(group=1, places=1, f=4, c=2),
            sites(*mixed_data(2, 1)),
        ),
        "noised": (noised(), sites(*({"norm": 1.0, "steps": 2},) * 5)),
        "sealed": (
            sealed(k=3),
            sites(*({"number": np.ones(3, int), "index": i, "clients": 5} for i in range(5))),
        ),
    }


@pytest.mark.parametrize("name", sorted(everything()))
def test_every_envelope_is_as_planned_and_stands_in_two_ledgers(name: str) -> None:
    algorithm, holders = everything()[name]
    played = play(algorithm, holders, rounds=2)
    entries = [
        entry
        for store in played.ledgers.values()
        for entry, _ in read_lines(store.lines)
        if entry["kind"] in ("release", "receipt")
    ]
    assert played.tap.sent
    for to, data in played.tap.sent:
        envelope = Envelope.decode(data)
        header, promise = envelope.header, commitment(envelope)
        item = played.plan.item(header.item)
        assert len(data) == item.bytes and header.recipient == to
        held = [(e["kind"], e["party"]) for e in entries if e["commitment"] == promise]
        assert sorted(held) == [("receipt", to), ("release", header.sender)]


@pytest.mark.parametrize("name", sorted(set(everything()) - {"sealed"}))
def test_a_policy_that_does_not_name_the_disclosure_refuses(name: str) -> None:
    algorithm, _ = everything()[name]
    rules = {
        disclosure: chain
        for disclosure, chain in PrivacyPolicy.preset("pilot").rules.items()
        if disclosure in (Disclosure.SUM, *CONTROLS)
    }
    with pytest.raises(NotAdmitted) as error:
        plan_of(algorithm, PrivacyPolicy(name="sums_only", rules=rules), 8, 1)
    assert "which it does not name" in error.value.why


# --- what the nouns cannot say yet: each of these is a finding ----------------------------------


class Config(PublicMessage):
    """A public fact."""

    seed: int = count(unit="seed", meaning="a public seed")


class Hello(PublicMessage):
    """A client's public fact, such as a public key."""

    number: int = count(unit="key", meaning="a public number")


class Number(ReleasedMessage):
    """A released number."""

    number: float = real(unit="weight", meaning="a number")


def greet(site: Site, given: Number) -> Hello:
    return Hello(number=7)


def asking(given: Message, kind: type[Message], answer: Any) -> Algorithm[Any]:
    def round(state: Any, cohort: Cohort) -> Round[Any]:
        yield Ask(cohort, given=given, back=kind)
        return state

    form = Form.of("only", round, answers={type(given): answer})
    return Algorithm("toy", "none", lambda rng: None, lambda s, g: np.zeros((0, 0)), (form,))


def test_a_message_with_no_view_is_refused_when_planning_not_during_a_round() -> None:
    """PUBLIC and RELEASED answers have no verb of Reply: say so before anything is sent."""
    with pytest.raises((TypeError, ValueError, NotAdmitted)):
        plan_of(asking(Number(number=1.0), Hello, greet), PrivacyPolicy.preset("pilot"), 5, 1)


def test_protection_of_a_bundle_is_the_strictest_of_its_messages() -> None:
    """A sealed result that rides behind a PUBLIC message must not leave under the PUBLIC chain."""
    algorithm = weighted_sum(d=4, p=2)
    (form,) = algorithm.forms
    first, second = form.exchanges
    riding = replace(second, given=(Config, *second.given))
    loose = replace(algorithm, forms=(Form(form.name, form.round, (first, riding)),))
    policy = PrivacyPolicy.preset("unsafe_plaintext")
    plan = plan_of(loose, policy, 5, 1)
    item = plan.item("receive.down")
    said = [m for m in item.messages if m.name != "Place"]  # of the layer itself, for one client
    disclosures = {m.disclosure for m in said} - {"PUBLIC", "RELEASED"}
    assert {item.disclosure} == disclosures


@pytest.mark.parametrize("dim", ["records", "cohort", "roster_mask", "he_public_key"])
def test_an_algorithm_may_not_redefine_a_dimension_of_the_plan(dim: str) -> None:
    """A silent override plans another size than the algorithm meant."""
    algorithm = noised()
    with pytest.raises((ValueError, NotAdmitted)):
        plan_of(replace(algorithm, dims={dim: 3}), PrivacyPolicy.preset("unsafe_plaintext"), 5, 1)


def test_each_keeps_the_type_of_its_message() -> None:
    """A constrained type variable would widen Norm to NoisedMessage, which has no `norm`."""
    assert EachT.__constraints__ == () and EachT.__bound__ is not None

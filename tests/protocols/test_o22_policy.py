"""What a policy, a plan and a receiver hold of mixtures: chains, sizes, noise, wrong bodies."""

from __future__ import annotations

import struct

import numpy as np
import pytest
from pydantic import ValidationError

from crypto.samplers import Stream
from protocols import mix_layout
from protocols.budget import Budget
from protocols.chains import check_chain
from protocols.disclosures import Disclosure
from protocols.errors import BadEnvelope, NotAdmitted, NotInPlan
from protocols.forms import Exchange, Form
from protocols.guards import Blur, Clip, Mask, Mix, Quantise, Seal, UnsafeClear
from protocols.messages import MixedMessage, ReleasedMessage, count, real
from protocols.mix_layout import MixLayout, mixed_fields, whole
from protocols.mixing import Mixer
from protocols.policy import PRESETS, PrivacyPolicy
from protocols.training import Training
from tests.protocols.mix import (
    CLASSES,
    FLOOR,
    GRID,
    MASH,
    MEMBERS,
    PLACES,
    WIDTH,
    Go,
    Mashed,
    asked,
    chain,
    fill,
    layout,
    mash,
    mixing,
    mixing_plan,
    mixing_policy,
    toy,
)
from tests.protocols.toys import names_of
from tests.protocols.wire import World

CLIP, MIX = Clip(norm="l2", bound=16.0), Mix()


# --- chains -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "wrong",
    [
        (MIX, CLIP, Seal()),
        (MIX, Seal()),
        (CLIP, Seal()),
        (CLIP, MIX),
        (Clip(), MIX, Seal()),  # every coordinate by itself is no bound of a record
        (CLIP, Blur(multiplier=1), MIX, Seal()),
        (CLIP, MIX, Blur(multiplier=1), Blur(multiplier=1), Seal()),
        (CLIP, MIX, MIX, Seal()),
        (CLIP, Quantise(), MIX, Seal()),
        (CLIP, Quantise(), Mask(), Seal()),
        (CLIP, MIX, UnsafeClear()),
        (Seal(),),
        (CLIP, MIX, Blur(multiplier=0.001), Seal()),  # 1 grid step: 8 are needed (O19)
    ],
)
def test_o14_a_chain_in_a_wrong_order_does_not_construct(wrong):
    with pytest.raises(ValueError):
        check_chain(Disclosure.MIXED, wrong)
    with pytest.raises(ValidationError):
        PrivacyPolicy(name="wrong", rules={Disclosure.MIXED: wrong})


def test_o14_the_order_is_clip_mix_noise_seal():
    check_chain(Disclosure.MIXED, (CLIP, MIX, Seal()))
    check_chain(Disclosure.MIXED, (CLIP, MIX, Blur(multiplier=1), Seal()))
    check_chain(Disclosure.MIXED, (UnsafeClear(),))
    for other in set(Disclosure) - {Disclosure.MIXED}:
        with pytest.raises(ValueError):
            check_chain(other, (CLIP, MIX, Seal()))


@pytest.mark.parametrize(
    "facts", [{"floor": 3}, {"floor": 8, "apart": 9}, {"apart": 1}, {"bucket": 0}, {"bits": 25}]
)
def test_a_floor_is_no_single_record(facts):
    with pytest.raises(ValidationError):
        Mix(**facts)


def test_presets_name_mixtures_but_for_strict_and_calibrated():
    named = {name for name, policy in PRESETS.items() if Disclosure.MIXED in policy.rules}
    assert named == {"pilot", "he", "shuffled", "masks", "ckks", "unsafe_plaintext"}
    for name in ("strict", "calibrated"):
        with pytest.raises(NotAdmitted) as error:
            PRESETS[name].admit(toy())
        assert "Mashed needs MIXED" in error.value.why


def test_the_first_admitted_form_is_taken():
    class Sum(ReleasedMessage):
        step: int = count(unit="round", meaning="rounds")

    def quiet(site, given):
        return None

    other = Form("no_ego_upload", MASH.round, (Exchange("quiet", (Sum,), (), quiet),))
    both = toy()
    both = type(both)(**{**vars(both), "forms": (MASH, other)})
    assert PRESETS["pilot"].admit(both) is MASH
    assert PRESETS["strict"].admit(both) is other


def test_o16_mixtures_are_not_accounted_so_a_budget_refuses_them():
    with pytest.raises(ValidationError, match="budget"):
        PrivacyPolicy(
            name="both",
            rules={Disclosure.MIXED: chain()},
            budget=Budget(epsilon=1.0, delta=1e-5),
        )


def test_private_training_refuses_mixtures_of_records():
    training = Training(
        rate=0.5, batch=4, epsilon=8.0, delta=1e-5, budget=Budget(epsilon=9, delta=1e-4)
    )
    policy = mixing_policy().model_copy(update={"training": training})
    form = Form("mash", MASH.round, MASH.exchanges, by_gradients=True)
    with pytest.raises(NotAdmitted) as error:
        policy.admit(toy(form))
    assert "mixed from records" in error.value.why


def test_o22_a_form_of_single_records_is_refused_when_the_plan_is_made():
    """Not when it first speaks; and only a chain that mixes is in its way."""
    form = Form("unmixed", MASH.round, MASH.exchanges, unmixed=True)
    for preset in ("pilot", "masks"):
        with pytest.raises(NotAdmitted) as error:
            mixing_plan(mixing_policy(preset=preset), form)
        assert "'unmixed': message Mashed would hold single records" in error.value.why
        assert "take unsafe_plaintext" in error.value.why
        assert "of the presets" not in error.value.fix
    assert mixing_plan(PRESETS["unsafe_plaintext"], form).form == "unmixed"
    assert mixing_plan(mixing_policy(), MASH).form == MASH.name


def test_two_mixed_messages_of_one_ask_are_refused():
    class Second(MixedMessage):
        rows: object = real("mixtures", "width", unit="1", meaning="m")

    form = Form("two", MASH.round, (Exchange("two", (Go,), (Mashed, Second), mash),))
    with pytest.raises(NotAdmitted) as error:
        mixing_policy().admit(toy(form))
    assert "two MIXED" in error.value.why


def declared():
    class NoMixtures(MixedMessage):
        rows: object = real("width", "width", unit="1", meaning="m")

    class Counts(MixedMessage):
        rows: object = count("mixtures", "width", unit="1", meaning="m")

    class Two(MixedMessage):
        rows: object = real("mixtures", "width", unit="1", meaning="m")
        more: object = real("mixtures", "width", unit="1", meaning="m")

    class Everywhere(MixedMessage):
        rows: object = real("mixtures", "places", "width", unit="1", meaning="m")
        label: object = real("mixtures", "places", "classes", unit="1", meaning="m", label=True)

    class Flat(MixedMessage):
        rows: object = real("mixtures", unit="1", meaning="m")

    class Labels(MixedMessage):
        label: object = real("mixtures", "classes", unit="1", meaning="m", label=True)

    return [NoMixtures, Counts, Two, Everywhere, Flat, Labels]


@pytest.mark.parametrize("kind", declared(), ids=lambda kind: kind.__name__)
def test_labels_are_the_centres_and_fields_are_mixtures(kind):
    with pytest.raises(ValueError, match=kind.__name__):
        mixed_fields(kind)


# --- plans --------------------------------------------------------------------------------------


def test_the_plan_says_what_leaves_and_in_which_protection():
    plan = mixing_plan(mixing_policy(chain(Blur(multiplier=1.0))), records=128)
    item = plan.item("mash.up.MIXED")
    assert plan.dims["mixtures"] == 16
    assert item.body == 8 + 16 * (PLACES * WIDTH + CLASSES) * 4  # with noise: four bytes an entry
    assert item.guards == (
        "clip(norm=l2, bound=16.0)",
        "mix(floor=8, apart=2, bucket=1, bits=16)",
        "blur(multiplier=1.0)",
        "seal",
    )
    features, label = item.messages[0].fields
    assert (features.bound, label.bound) == ("16.0", "1.0")
    assert float(features.step) == pytest.approx(GRID) and features.shape == (16, PLACES, WIDTH)


def test_the_number_of_mixtures_follows_from_public_facts():
    for records, group, bucket, wanted in (
        (64, 0, 1, 8),
        (64, 16, 1, 4),
        (512, 0, 8, 64),
        (512, 30, 8, 16),
        (4, 0, 4, 1),
    ):
        policy = mixing_policy(chain(bucket=bucket))
        facts = {"group": group} if group else {}
        assert mixing_plan(policy, records=records, **facts).dims["mixtures"] == wanted
    assert [whole(n, 4) for n in range(10)] == [1, 1, 2, 2, 4, 4, 4, 4, 8, 8]


def test_a_plan_without_room_for_a_mixture_is_refused():
    with pytest.raises(ValueError, match="no room"):
        mixing_plan(mixing_policy(), mixtures=0)


def test_a_plan_with_a_lower_floor_is_refused():
    policy = mixing_policy()
    plan = mixing_plan(policy)
    item = plan.item("mash.up.MIXED")
    loose = item.model_copy(
        update={"guards": tuple(g.replace("floor=8", "floor=4") for g in item.guards)}
    )
    items = tuple(loose if i.id == item.id else i for i in plan.items)
    with pytest.raises(NotInPlan, match="another protection"):
        World(MASH, policy, plan=plan.model_copy(update={"items": items}))


def test_an_algorithm_s_group_below_the_floor_does_not_lower_it():
    policy = mixing_policy(chain(floor=FLOOR))
    made = MixLayout(Mashed, policy.rules[Disclosure.MIXED], mixing_plan(policy, group=2).dims)
    assert made.size == FLOOR


# --- noise --------------------------------------------------------------------------------------


def noised(multiplier: float, bits: int = 16) -> tuple[np.ndarray, np.ndarray]:
    """Return the noise of 200 releases of the same mixtures, features and labels, in steps."""

    class Site:
        pass

    site, found = Site(), []
    fill(site, np.random.default_rng(2), MEMBERS)
    policy = mixing_policy(chain(Blur(multiplier=multiplier), bits=bits))
    how = MixLayout(Mashed, policy.rules[Disclosure.MIXED], mixing_plan(policy).dims)
    mixer = Mixer()
    for _ in range(200):
        message = Mashed.unmixed(table=site.table, index=site.index, label=site.label)
        body, *_ = mixer.mixed(message, how, bytes(32))
        found.append(how.decode(body))
    features = np.stack([m.features for m in found])
    labels = np.stack([m.label for m in found])
    return features - features.mean(axis=0), labels - labels.mean(axis=0)


def noise_on_labels(multiplier: float) -> np.ndarray:
    """Return the noise on the labels of 200 runs: theirs is drawn once in each."""

    class Site:
        pass

    site, found = Site(), []
    fill(site, np.random.default_rng(2), MEMBERS)
    policy = mixing_policy(chain(Blur(multiplier=multiplier)))
    how = MixLayout(Mashed, policy.rules[Disclosure.MIXED], mixing_plan(policy).dims)
    for _ in range(200):
        message, mixer = (
            Mashed.unmixed(table=site.table, index=site.index, label=site.label),
            Mixer(),
        )
        body, *_ = mixer.mixed(message, how, bytes(32))
        said = how.decode(body).label
        onehot = np.eye(said.shape[1])[site.label]
        exact = [onehot[mixer.groups == group].mean(axis=0) for group in range(len(said))]
        found.append((said - np.array(exact)).ravel())
    return np.concatenate(found)


def test_o14_noise_covers_features_and_labels_in_the_unit_of_one_record():
    features, same = noised(0.5)
    labels = noise_on_labels(0.5)
    assert features.std() == pytest.approx(0.5 * 16.0 / FLOOR, rel=0.02)
    assert labels.std() == pytest.approx(0.5 * 1.0 / FLOOR, rel=0.1)
    assert np.abs(labels.mean()) < 0.1 * labels.std()
    assert np.abs(same).max() < 1e-9  # within a run labels are the same bytes


def test_o15_noise_and_rounding_are_fresh_in_every_release():
    features, _ = noised(0.5)
    flat = features.reshape(200, -1)
    shared = np.corrcoef(flat)[np.triu_indices(200, 1)]
    assert np.abs(shared).max() < 0.5 and len(np.unique(flat, axis=0)) == 200


def test_o15_under_noise_rounding_comes_from_the_operating_system(monkeypatch):
    class Silent:
        largest = 0

        def sample(self, stream, count):
            return np.zeros(count, dtype=np.int64)

    monkeypatch.setattr(mix_layout, "sampler", lambda law, steps: Silent())
    world = mixing(chain(Blur(multiplier=1.0)))
    site = world.sites["client-1"]
    message = Mashed.unmixed(table=site.table, index=site.index, label=site.label)
    mixer = Mixer()
    bodies = [mixer.mixed(message, layout(world), bytes(32))[0] for _ in range(2)]
    assert bodies[0] != bodies[1]


def test_without_noise_rounding_repeats_so_that_runs_without_chance_do():
    world = mixing()
    how, site = layout(world), world.sites["client-1"]
    message = Mashed.unmixed(table=site.table, index=site.index, label=site.label)
    mixer = Mixer()
    bodies = [mixer.mixed(message, how, bytes(32))[0] for _ in range(2)]
    assert bodies[0] == bodies[1]
    assert mixer.mixed(message, how, bytes([1] * 32))[0] != bodies[0]


def test_o14_records_are_clipped_before_they_are_mixed():
    world = mixing(chain(bound=1.0))
    for site in world.sites.values():
        site.table = 100 * site.table
    (first, *_) = asked(world).each(Mashed)
    assert np.linalg.norm(first.features, axis=2).max() <= 1.0
    told = [
        e["clipped"]
        for e in world.entries("client-1")
        if e["kind"] == "release" and e["item"] == "mash.up.MIXED"
    ]
    assert told == [True]
    # One huge record moves a mixture by no more than the bound over the floor.
    site, mixer = world.sites["client-1"], Mixer()
    message = Mashed.unmixed(table=site.table, index=site.index, label=site.label)
    before = layout(world).decode(mixer.mixed(message, layout(world), bytes(32))[0])
    site.table = np.concatenate([1e300 * np.ones((1, WIDTH)), site.table[1:]])
    message = Mashed.unmixed(table=site.table, index=site.index, label=site.label)
    after = layout(world).decode(mixer.mixed(message, layout(world), bytes(32))[0])
    moved = np.linalg.norm(after.features - before.features, axis=2)
    assert 0 < moved.max() <= 2 / FLOOR + 1e-3


# --- what a dishonest client sends ----------------------------------------------------------------


def wrong_bodies() -> dict[str, bytes]:
    world = mixing()
    how, site = layout(world), world.sites["client-1"]
    message = Mashed.unmixed(table=site.table, index=site.index, label=site.label)
    good, *_ = Mixer().mixed(message, how, bytes(32))
    assert how.decode(good).features.shape == (5, PLACES, WIDTH)
    return {
        "none_and_some": struct.pack("<Q", 0) + good[8:],
        "too_many": struct.pack("<Q", how.most + 1) + good[8:],
        "huge": struct.pack("<Q", 2**63) + good[8:],
        "behind": struct.pack("<Q", 4) + good[8:],
        "short": good[:-1],
        "long": good + b"\0",
        "off_grid": good[:8] + struct.pack("<h", -32768) + good[10:],
    }


@pytest.mark.parametrize("name", sorted(wrong_bodies()))
def test_a_body_that_is_no_mixtures_is_refused(name):
    world = mixing()
    with pytest.raises(BadEnvelope):
        layout(world).decode(wrong_bodies()[name])
    if name in ("short", "long"):
        return  # the inbox refuses these before
    world.prepare(1)
    parcels = world.ask(given=Go(step=1), back=(Mashed,))
    for parcel in parcels:
        (answer,) = world.deliver(parcel)
        data = answer.data
        if parcel.to == "client-4":
            data = spoilt(world, data, wrong_bodies()[name])
        world.aggregator.receive(data)
    with pytest.raises(BadEnvelope):
        world.aggregator.advance()


def spoilt(world: World, honest: bytes, body: bytes) -> bytes:
    """Return the same upload with another body, under the client's own signature."""
    from protocols.envelope import Envelope
    from tests.protocols.wire import where_of

    header = Envelope.decode(honest).header
    where = where_of(honest, names_of(5))
    return world.forge(header.sender, header.item, header.recipient, body, where, head=header.head)


def test_not_finite_values_are_refused_in_clear_too():
    policy = mixing_policy((UnsafeClear(),))
    how = MixLayout(Mashed, policy.rules[Disclosure.MIXED], mixing_plan(policy, mixtures=1).dims)
    ready = {
        "features": np.ones((1, PLACES, WIDTH)),
        "label": np.ones((1, CLASSES)),
    }
    body = how.encode(ready, Stream(bytes(32)), Stream(bytes(32)))
    assert how.decode(body).features.sum() == PLACES * WIDTH
    with pytest.raises(BadEnvelope):
        how.decode(body[:8] + struct.pack("<d", np.nan) + body[16:])

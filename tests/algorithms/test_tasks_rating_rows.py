"""Rating tasks step by step: slopes, plain gradient descent, and a site's own rows alone."""

from __future__ import annotations

import dataclasses
from itertools import islice

import numpy as np
import pytest
import torch

from algorithms.nn import dot
from algorithms.tasks import Batch, Site
from algorithms.tasks.inputs import RatingsData
from algorithms.tasks.rating import RatingTask
from tests.algorithms.rating_tools import ITEMS, MODELS, SPEC, USERS, begun, of, site_of, toy


class Wide(RatingTask):
    """The same task without its short cut: all rows of the model, at every site."""

    def _near(self, site, *vectors):
        return None


def small(task, seed=0):
    """Weights whose predictions lie inside the scale, where clipping does nothing."""
    return np.float32(0.4) * begun(task, seed) + np.float32(0.05) * begun(task, seed, spread=1.0)


def wide_site(part, seed=1):
    """Users and items under their own numbers, as a model of all rows needs them."""
    data = RatingsData.from_ratings(part, USERS, ITEMS)
    user, item = torch.from_numpy(part.user), torch.from_numpy(part.item)
    return Site(dataclasses.replace(data, user=user, item=item), seed=seed)


# The short cut: a site's own rows.

SETTINGS = [
    {"optimiser": optimiser, "weight_decay": decay, "batch": batch}
    for optimiser in ("sgd", "adamw", "adam")
    for decay in (0.0, 0.3)
    for batch in (None, 16)
]


@pytest.mark.parametrize("pull", [0.0, 0.5])
@pytest.mark.parametrize("options", SETTINGS, ids=lambda o: "-".join(map(str, o.values())))
def test_a_site_trains_its_own_rows_as_if_it_trained_all(options, pull):
    """The rows that no rating touches are moved by weight decay and the pull alone."""
    part = toy()
    tasks = [kind(SPEC, hidden=4, lr=0.05, **options) for kind in (RatingTask, Wide)]
    start = begun(tasks[0], spread=0.3)
    found, expected = (
        task.fit(start, site, epochs=4, pull=pull)
        for task, site in zip(tasks, (site_of(part), wide_site(part)), strict=True)
    )
    np.testing.assert_allclose(found, expected, atol=1e-6)
    untouched = found == start
    if options["weight_decay"] == 0.0:
        absent = ITEMS - len(np.unique(part.item)) + USERS - len(np.unique(part.user))
        assert absent >= 20
        assert untouched.sum() >= 5 * absent
    else:
        assert not untouched.any()


def test_kept_moments_of_a_sites_own_rows_know_neither_pull_nor_adams_decay():
    task, site = RatingTask(SPEC, hidden=4, keep_moments=True), site_of(toy())
    task.fit(begun(task), site, epochs=1)
    with pytest.raises(ValueError, match="moves all"):
        task.fit(begun(task), site, epochs=1, pull=0.5)
    task = RatingTask(SPEC, hidden=4, keep_moments=True, optimiser="adam", weight_decay=0.1)
    with pytest.raises(ValueError, match="moves all"):
        task.fit(begun(task), site_of(toy()), epochs=1)


@pytest.mark.parametrize("decay", [0.0, 0.3])
def test_a_site_steps_and_predicts_with_its_own_rows_as_with_all(decay):
    part = toy()
    near, wide = (kind(SPEC, hidden=4, weight_decay=decay) for kind in (RatingTask, Wide))
    ours, all_rows = site_of(part), wide_site(part)
    v, w = begun(near, 0, spread=0.3), begun(near, 1, spread=0.3)
    batch = Batch(np.flatnonzero(part.train)[:20], 5)
    pairs = [
        (near.gradient(v, ours, batch), wide.gradient(v, all_rows, batch)),
        (near.predict(v, ours), wide.predict(v, all_rows)),
        (near.predict_mixed(v, w, 0.3, ours), wide.predict_mixed(v, w, 0.3, all_rows)),
    ]
    found = near.mixed(v, w, 0.3, ours, batch)
    expected = wide.mixed(v, w, 0.3, all_rows, batch)
    pairs += [(getattr(found, n), getattr(expected, n)) for n in ("personal", "shared", "alpha")]
    for one, other in pairs:
        np.testing.assert_allclose(one, other, atol=1e-6)


def test_a_site_builds_no_more_than_its_own_rows(monkeypatch):
    task, site = RatingTask(SPEC, hidden=4), site_of(of(toy(), slice(5)))
    start, built = begun(task), []
    build = dot.build

    def spy(users, items, *others, **options):
        built.append((users, items))
        return build(users, items, *others, **options)

    monkeypatch.setattr(dot, "build", spy)
    task.fit(start, site, epochs=1)
    task.predict(start, site)
    batch = Batch(np.flatnonzero(site.data.train.numpy()), 0)
    task.mixed(start, task.gradient(start, site, batch), 0.5, site, batch)
    assert built
    assert set(built) == {(len(site.data.users), len(site.data.items))}


# Steps of plain gradient descent.


@pytest.mark.parametrize("model", MODELS)
def test_the_gradient_is_that_of_the_documented_loss(model):
    task, part = RatingTask(SPEC, model=model, hidden=3, weight_decay=0.1), toy()
    site, start = site_of(part), small(task)
    batch = Batch(np.flatnonzero(part.train)[:30], 0)

    def loss(weights):
        predicted = task.predict(weights.astype(np.float32), site)[batch.records, 0]
        assert 1 < predicted.min() < predicted.max() < 5
        off = (predicted.astype(float) - part.rating[batch.records]) / 4
        return np.square(off).mean() + 0.05 * np.square(weights.astype(float)).sum()

    found, rng = task.gradient(start, site, batch), np.random.default_rng(0)
    assert found.dtype == np.float32
    for _ in range(5):
        way = rng.normal(size=task.size)
        way *= 0.03 / np.linalg.norm(way)
        slope = (loss(start + way) - loss(start - way)) / 2
        assert slope == pytest.approx(float(found @ way), abs=1e-4 * np.linalg.norm(found).item())


@pytest.mark.parametrize("model", MODELS)
def test_mixed_gives_the_slope_in_alpha(model):
    task, part = RatingTask(SPEC, model=model, hidden=3, weight_decay=0.0), toy()
    site, v, w = site_of(part), small(task, 0), small(task, 1)
    batch = Batch(np.flatnonzero(part.train)[:30], 0)

    def loss(alpha):
        mixed = task.predict_mixed(v, w, alpha, site)[batch.records, 0]
        assert 1 < mixed.min() < mixed.max() < 5
        return np.square((mixed.astype(float) - part.rating[batch.records]) / 4).mean()

    found = task.mixed(v, w, 0.4, site, batch)  # the loss is a parabola in alpha
    assert found.alpha == pytest.approx((loss(0.6) - loss(0.2)) / 0.4, rel=1e-3)
    alone = task.mixed(v, w, 1.0, site, batch)
    np.testing.assert_allclose(alone.personal, task.gradient(v, site, batch), atol=1e-7)
    assert not alone.shared.any()


@pytest.mark.parametrize("model", MODELS)
def test_fitting_with_sgd_is_a_loop_of_gradient_steps(model):
    task = RatingTask(
        SPEC, model=model, hidden=3, lr=0.1, weight_decay=0.2, optimiser="sgd", batch=50
    )
    start = begun(task, spread=0.1)
    stepped, site = start, site_of(toy())
    for batch in islice(task.batches(site), 2 * -(-site.count // 50)):
        stepped = stepped - np.float32(task.lr) * task.gradient(stepped, site, batch)
    fit = task.fit(start, site_of(toy()), epochs=2)
    np.testing.assert_allclose(fit, stepped, atol=1e-6)


def test_the_pull_holds_the_weights_back():
    task = RatingTask(SPEC, hidden=4, optimiser="sgd", lr=0.2)
    start = begun(task)
    near, far = (task.fit(start, site_of(toy()), epochs=20, pull=pull) for pull in (2.0, 0.0))
    assert np.linalg.norm(near - start) < 0.7 * np.linalg.norm(far - start)

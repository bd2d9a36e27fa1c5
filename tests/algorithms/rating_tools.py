"""Toy ratings for the tests of rating tasks."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np

from algorithms import nn
from algorithms.tasks import DataSpec, Site
from algorithms.tasks.inputs import RatingsData
from algorithms.tasks.rating import RatingTask

USERS, ITEMS = 30, 25
SPEC = DataSpec(
    "rating", 0, 1, 512, 3, True, "toy", users=USERS, items=ITEMS, lowest=1.0, highest=5.0
)
MODELS = tuple(name for name in nn.model_names("rating") if not nn.alone(name))
FIELDS = ("user", "item", "rating", "train", "val", "test")


def toy(seed=0, users=20, items=15, *, train=0.6):
    """Ratings of some users and items, as their biases and one common taste have it."""
    rng = np.random.default_rng(seed)
    user, item = (side.ravel() for side in np.indices((users, items)))
    kept = rng.random(len(user)) < 0.7
    user, item = rng.permutation(USERS)[user[kept]], rng.permutation(ITEMS)[item[kept]]
    of_user, of_item = rng.normal(size=(2, USERS, 2)), rng.normal(size=(2, ITEMS, 2))
    taste = of_user[0, user] @ [0.6, 0] + of_item[0, item] @ [0.6, 0]
    taste += 0.5 * of_user[1, user, 0] * of_item[1, item, 0]
    role = rng.random(len(user))
    return SimpleNamespace(
        user=user,
        item=item,
        rating=np.clip(3.2 + taste, 1, 5).astype(np.float32),
        train=role < train,
        val=(role >= train) & (role < 0.8),
        test=role >= 0.8,
    )


def of(part, chosen):
    return SimpleNamespace(**{name: getattr(part, name)[chosen] for name in FIELDS})


def site_of(part, seed=1, sizes=(USERS, ITEMS)):
    return Site(RatingsData.from_ratings(part, *sizes), seed=seed)


def begun(task, seed=0, *, spread=0.0):
    rng = np.random.default_rng(seed)
    start = task.initial(rng)
    return start + rng.normal(0, spread, start.shape).astype(np.float32)


def fitted(task=None, *, seed=1, epochs=5, part=None):
    task = task or RatingTask(SPEC, hidden=4)
    return task.fit(begun(task), site_of(part or toy(), seed), epochs=epochs)


def errors(task, weights, site):
    return task.scoring.read(task.score(task.predict(weights, site), site))

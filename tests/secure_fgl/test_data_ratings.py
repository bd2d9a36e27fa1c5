"""Ratings: cleaning, published splits, checks, published figures."""

from __future__ import annotations

import numpy as np
import pytest

from secure_fgl.data import published_shape, read_dataset, spec_of
from secure_fgl.data.sources import ratings_npz
from secure_fgl.data.sources.ratings_npz import CATEGORIES, NAMES, TEST


@pytest.fixture
def save(tmp_path, monkeypatch):
    """Write a small file under a set's name, with the table's sizes changed to fit it."""

    def written(name, user, item, rating, records, more=None):
        users, items = max(user) + 1, len(set(item)) if name == "ciao" else max(item) + 1
        small = NAMES[name]._replace(records=records, users=users, items=items)
        monkeypatch.setitem(NAMES, name, small)
        value = "weight" if name == "lastfm" else "rating"
        arrays = {
            "user": np.array(user, np.int32),
            "item": np.array(item, np.int32),
            value: np.array(rating, np.int32 if name == "lastfm" else np.float32),
        }
        (tmp_path / name).mkdir(exist_ok=True)
        np.savez(tmp_path / name / f"{name}.npz", **(arrays | (more or {})))
        return tmp_path

    return written


def triples(ratings):
    return list(zip(ratings.user, ratings.item, ratings.rating, strict=True))


def test_of_several_ratings_of_a_pair_the_last_stays(save):
    root = save("filmtrust", [0, 1, 0, 0, 1], [0, 0, 0, 1, 0], [1, 2, 3, 4, 2], 3)
    assert triples(read_dataset("filmtrust", root)) == [(0, 0, 3), (0, 1, 4), (1, 0, 2)]


def test_a_zero_is_no_rating_and_hides_none(save):
    kinds = np.arange(28, dtype=np.int16)
    user, item = [0, 0, *[1] * 26], [5, 5, *range(10, 36)]
    rating = [4, 0, 0, *[3] * 25]
    root = save("ciao", user, item, rating, 26, {"category": kinds})
    kept = read_dataset("ciao", root)
    assert triples(kept)[0] == (0, 0, 4)
    assert kept.category.tolist() == [0, *range(3, 28)]
    assert kept.item.tolist() == [0, *range(2, 27)]  # item 10 keeps its number though unrated
    assert (kept.users, kept.items) == (2, 27)


def test_cleaning_keeps_the_test_rows_with_their_ratings(save, monkeypatch):
    monkeypatch.setitem(TEST, "flixster", ("test_mask", 1))
    test = np.array([True, False, True])
    root = save("flixster", [0, 1, 0], [0, 0, 0], [1, 2, 3], 2, {"test_mask": test})
    ratings = read_dataset("flixster", root, split="published")
    assert triples(ratings) == [(1, 0, 2), (0, 0, 3)]
    train, val, held_out = ratings.public
    assert (train.tolist(), val.any(), held_out.tolist()) == ([True, False], False, [False, True])
    assert read_dataset("flixster", root).public is None


def test_plays_become_logarithms(save):
    root = save("lastfm", [0, 1], [0, 1], [1, 352698], 2)
    rating = read_dataset("lastfm", root).rating
    np.testing.assert_allclose(rating, np.log([2, 352699]), rtol=1e-6)
    assert NAMES["lastfm"].lowest < rating.min() < rating.max() < NAMES["lastfm"].highest


def test_a_rating_set_speaks_for_itself(save):
    ratings = read_dataset("filmtrust", save("filmtrust", [0], [0], [0.5], 1))
    assert repr(ratings) == "<Ratings filmtrust>"
    assert [ratings.user.dtype, ratings.item.dtype] == [np.int64] * 2
    assert (ratings.rating.dtype, ratings.category, ratings.public) == (np.float32, None, None)
    assert (ratings.lowest, ratings.highest, ratings.synthetic) == (0.5, 4.0, False)


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("filmtrust", {"user": np.array([0, -1], np.int32)}),
        ("filmtrust", {"user": np.array([0, 2], np.int32)}),
        ("filmtrust", {"user": np.array([0, 0.5])}),
        ("filmtrust", {"user": np.array([0], np.int32)}),
        ("filmtrust", {"item": np.array([0, 2], np.int32)}),
        ("filmtrust", {"item": np.array([-1, 0], np.int32)}),
        ("filmtrust", {"rating": np.array([1, np.nan], np.float32)}),
        ("filmtrust", {"rating": np.array([1, 4.5], np.float32)}),
        ("filmtrust", {"rating": np.array([1, -1], np.float32)}),
        ("filmtrust", {"rating": np.array([1, 0], np.float32)}),
        ("filmtrust", {"rating": np.array([1, None])}),
        ("flixster", {"test_mask": np.array([True, True])}),
        ("flixster", {"test_mask": np.array([1, 0])}),
        ("flixster", {"test_mask": np.array([True])}),
        ("flixster", {}),
        ("epinions", {"category": np.array([0, 27], np.int16)}),
        ("epinions", {"category": np.array([0], np.int16)}),
        ("epinions", {}),
    ],
)
def test_another_file_under_the_name_is_refused(save, monkeypatch, name, changes):
    monkeypatch.setitem(TEST, "flixster", ("test_mask", 1))
    root = save(name, [0, 1], [0, 1], [1, 2], 2, changes)
    options = {"split": "published"} if name == "flixster" else {}
    with pytest.raises(ValueError, match=r"not the published set|cannot be read") as refused:
        read_dataset(name, root, **options)
    assert str(root / name) in str(refused.value)


def test_a_file_of_another_length_is_refused(save):
    root = save("filmtrust", [0, 1], [0, 1], [1, 2], 3)
    with pytest.raises(ValueError, match=r"3 ratings from 0\.5 to 4 after cleaning"):
        read_dataset("filmtrust", root)


@pytest.mark.parametrize("keep", [0.0, 0.5, 0.99])
def test_a_damaged_file_is_refused(save, keep):
    path = save("filmtrust", [0, 1], [0, 1], [1, 2], 2) / "filmtrust" / "filmtrust.npz"
    content = path.read_bytes()
    path.write_bytes(content[: int(len(content) * keep)])
    with pytest.raises(ValueError, match="cannot be read"):
        read_dataset("filmtrust", path.parents[1])


@pytest.mark.parametrize(
    ("name", "options", "match"),
    [
        ("ciao", {"split": "published"}, "takes no options"),
        ("ml100k", {"split": "u1"}, "only be 'published'"),
        ("ml100k", {"spilt": "published"}, "did you mean 'split'"),
    ],
)
def test_a_wrong_option_is_refused_with_and_without_data(name, options, match, tmp_path):
    with pytest.raises(ValueError, match=match):
        spec_of(name, clients=5, options=options)
    with pytest.raises(ValueError, match=match):
        read_dataset(name, tmp_path, **options)


@pytest.mark.parametrize("name", sorted(NAMES))
def test_the_published_figures(name, data_root):
    ratings, shape = read_dataset(name, data_root), published_shape(name)
    assert ratings.records == shape.records
    pairs = ratings.user * shape.items + ratings.item
    assert len(np.unique(pairs)) == shape.records
    assert (ratings.rating >= shape.lowest).all()
    assert (ratings.rating <= shape.highest).all()
    if name in CATEGORIES:
        assert len(np.unique(ratings.category)) == CATEGORIES[name]


@pytest.mark.parametrize(
    ("name", "users", "items"),
    [
        ("ciao", 7375, 105096),  # of 105,114; 18 items were only given 0
        ("epinions", 22164, 296277),
        ("filmtrust", 1508, 2071),
        ("flixster", 2341, 2956),
        ("lastfm", 1892, 17632),
        ("ml100k", 943, 1682),
        ("yahoo_music", 1357, 1363),
    ],
)
def test_who_occurs(name, users, items, data_root):
    ratings = read_dataset(name, data_root)
    assert (len(np.unique(ratings.user)), len(np.unique(ratings.item))) == (users, items)


@pytest.mark.parametrize("name", sorted(TEST))
def test_the_published_splits(name, data_root):
    ratings = read_dataset(name, data_root, split="published")
    train, val, test = ratings.public
    assert test.sum() == TEST[name][1]
    assert train.sum() == ratings.records - TEST[name][1]
    assert not val.any()


def test_the_levels_of_ml100k(data_root):
    ratings = read_dataset("ml100k", data_root)
    assert np.bincount(ratings.rating.astype(int)).tolist() == [0, 6110, 11370, 27145, 34174, 21201]


def test_interactions_without_a_rating_have_no_name():
    assert "ml1m_implicit" not in ratings_npz.NAMES

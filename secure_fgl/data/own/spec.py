"""`spec.yaml`: what all sites agree on before any of them reads a record."""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import unicodedata
from collections.abc import Mapping
from pathlib import Path
from statistics import median_low
from typing import Annotated, Any, Literal

import yaml
from pydantic import Field, StringConstraints, ValidationError, field_validator, model_validator

from algorithms.tasks import DataSpec, Kind
from protocols.strict import Strict, not_yaml, problems, read_yaml
from secure_fgl.errors import PlanDrift, UsageError
from secure_fgl.store.files import settings_text

__all__ = ["RESERVED", "SPEC_FILE", "OwnSpec", "load_spec"]

SPEC_FILE = "spec.yaml"

RESERVED = ("id", "label", "smiles", "source", "target", "split")
"""Columns with a meaning of their own; no feature may be called so."""

_WIDEST = 1 << 20  # features, classes: a bound against typing errors, far above any real table
FARTHEST = 64
"""How many times the median of declared bounds of records one site's may be."""
_MOST = 1 << 31  # users, items, records: their numbers stay below 2**31

Name = Annotated[str, StringConstraints(min_length=1, max_length=200, strip_whitespace=True)]
Bound = Annotated[int, Field(ge=1, le=_MOST, strict=True)]
Count = Annotated[int, Field(ge=1, le=_WIDEST, strict=True)]
Digest = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]
Names = Annotated[tuple[Name, ...], Field(min_length=1, max_length=_WIDEST)]


class OwnSpec(Strict):
    """What a plan may know of the sites' data; the same text at every site.

    Attributes:
        name: what plans and reports call the data.
        task: node, graph or rating.
        features: names of the feature columns, in this order at every site; or how many, and the
            columns are then x0, x1, … Molecules need none: their atoms are described alike
            everywhere.
        classes: the labels' names; or how many, and the labels are then 0, 1, … With `multilabel`
            the names of the label columns, or how many: y0, y1, …
        multilabel: graphs only: every label is a yes-or-no question that may be unanswered.
        users, items: ratings only: how many there are at most, over all sites.
        lowest, highest: the scale of ratings.
        vocabulary: SHA-256 of ``vocabulary/users.txt`` and ``vocabulary/items.txt``, where ids are
            listed there instead of being numbers.
        records: a power of two at or above every site's number of training records; or one for
            each site's folder, by its name.
        split: shares of training, validation and test records, drawn at each site; or ``column``:
            every file says it row by row.
        synthetic: whether the data was generated.
    """

    name: Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$")]
    task: Kind
    features: Names | Count | None = None
    classes: Names | Count | None = None
    multilabel: bool = False
    users: int = Field(default=0, ge=0, lt=_MOST, strict=True)
    items: int = Field(default=0, ge=0, lt=_MOST, strict=True)
    lowest: float = 0.0
    highest: float = 0.0
    vocabulary: dict[Literal["users", "items"], Digest] = Field(default_factory=dict)
    records: Bound | Annotated[dict[str, Bound], Field(min_length=1)]
    split: tuple[float, float, float] | Literal["column"] = (0.2, 0.4, 0.4)
    synthetic: bool = False

    @field_validator("features", "classes", mode="before")
    @classmethod
    def _names_are_texts(cls, given: Any) -> Any:
        if isinstance(given, list | tuple):
            if any(isinstance(name, bool) for name in given):
                raise ValueError(
                    "put every name in quotes: YAML reads yes, no, on and off as truth"
                )
            return tuple(str(name) if isinstance(name, int) else name for name in given)
        return given

    @field_validator("features", "classes")
    @classmethod
    def _names_are_distinct(cls, given: tuple[str, ...] | int | None) -> Any:
        if isinstance(given, tuple) and len(set(given)) < len(given):
            raise ValueError("a name occurs twice")
        return given

    @field_validator("records")
    @classmethod
    def _are_powers_of_two(cls, records: int | dict[str, int]) -> int | dict[str, int]:
        for one in records.values() if isinstance(records, dict) else (records,):
            if one & (one - 1):
                raise ValueError(
                    f"must be a power of two, for example {1 << one.bit_length()}: an exact bound "
                    "would tell the number of records"
                )
        if isinstance(records, dict):
            _check_near(records)
        return records

    def declared(self, site: str) -> int | None:
        """Return how many training records a site says that it has at most; None: it says none."""
        return self.records.get(site) if isinstance(self.records, dict) else self.records

    @property
    def bound(self) -> int:
        """How many training records any site has at most."""
        found = self.records
        return max(found.values()) if isinstance(found, dict) else found

    @field_validator("split")
    @classmethod
    def _shares_fit(cls, split: Any) -> Any:
        if split != "column" and (min(split) < 0 or split[0] == 0 or abs(sum(split) - 1.0) > 1e-9):
            raise ValueError(
                "three shares (training, validation, test) of 0 or more that sum to 1, training "
                "above 0; or the word column"
            )
        return split

    @model_validator(mode="after")
    def _fits_its_task(self) -> OwnSpec:
        _check(self)
        return self

    @property
    def feature_columns(self) -> tuple[str, ...]:
        """Names of the feature columns, in order; none for molecules and ratings."""
        return _named(self.features, "x")

    @property
    def label_columns(self) -> tuple[str, ...]:
        """With `multilabel`, the label columns, in order; otherwise ``label`` alone."""
        return _named(self.classes, "y") if self.multilabel else ("label",)

    @property
    def labels(self) -> tuple[str, ...]:
        """The words that may stand in the column ``label``, in the order of the classes."""
        return _named(self.classes, "")

    @property
    def columns(self) -> str:
        """SHA-256 (hex) of what columns are called and classes mean, in order; public."""
        labels = self.label_columns if self.multilabel else self.labels
        named = [self.feature_columns, labels, dict(sorted(self.vocabulary.items()))]
        return hashlib.sha256(json.dumps(named, ensure_ascii=True).encode()).hexdigest()

    @property
    def text(self) -> str:
        """All of it as JSON, written in one way: what comments say is each site's own."""
        return json.dumps(self.model_dump(mode="json"), sort_keys=True, separators=(",", ":"))

    @property
    def digest(self) -> str:
        """SHA-256 (hex) of `text`; stands in plans, so that no two sites agree on two specs."""
        return hashlib.sha256(self.text.encode()).hexdigest()

    def check_digest(self, agreed: str, root: Path) -> None:
        """Raise PlanDrift unless this is the spec that a plan was made from.

        Args:
            agreed: the digest in the plan.
            root: where this one lies.
        """
        if not hmac.compare_digest(self.digest, agreed):
            raise PlanDrift(
                [f"{root / SPEC_FILE} has the digest {self.digest}, the agreed one {agreed or '-'}"]
            )

    @classmethod
    def of_text(cls, text: str) -> OwnSpec:
        """Read what `text` gives, strictly.

        Raises:
            ValueError: it is not a spec, or not written as specs are.
        """
        found = cls.model_validate_json(text)
        if found.text != text:
            raise ValueError("a spec that is not written as specs are")
        return found

    def data_spec(self, clients: int) -> DataSpec:
        """What a plan may know, for so many sites; no file of theirs is opened.

        Raises:
            ValueError: fewer than one client.
        """
        rating = self.task == "rating"
        features = _size(self.features)
        if self.task == "graph" and not features:
            from secure_fgl.data.sources.molecules import FEATURES as features

        return DataSpec(
            task=self.task,
            columns=self.columns,
            spec=self.digest,
            features=features,
            classes=1 if rating else _size(self.classes),
            records=self.bound,
            clients=clients,
            synthetic=self.synthetic,
            name=self.name,
            multilabel=self.multilabel,
            users=self.users,
            items=self.items,
            lowest=self.lowest,
            highest=self.highest,
        )


def _check_near(declared: Mapping[str, int]) -> None:
    """Raise ValueError where one site declares far more records than sites do.

    Grids and what a client may say in a total follow the largest bound of all, so that one site
    alone could make everybody's sums coarse. Who refuses has read no table, only the spec.
    """
    usual = median_low(declared.values())
    most = max(declared, key=lambda site: declared[site])
    if declared[most] > FARTHEST * usual:
        raise ValueError(
            f"{most} declares {declared[most]}, more than {FARTHEST} times the {usual} that sites "
            f"usually declare: the largest bound sets what all sums are rounded to; ask {most} for "
            f"at most {FARTHEST * usual}, and to take part with as many training records at most"
        )


def _named(given: tuple[str, ...] | int | None, incoming: str) -> tuple[str, ...]:
    if isinstance(given, int):
        return tuple(f"{incoming}{number}" for number in range(given))
    return given or ()


def _size(given: tuple[str, ...] | int | None) -> int:
    return given if isinstance(given, int) else len(given or ())


def _check(spec: OwnSpec) -> None:
    """Raise ValueError unless exactly the keys of the task are given."""
    needed = {
        "node": ("features", "classes"),
        "graph": ("classes",),
        "rating": ("users", "items", "highest"),
    }[spec.task]
    allowed = {*needed, "lowest", "vocabulary"} if spec.task == "rating" else set(needed)
    if spec.task == "graph":
        allowed |= {"features", "multilabel"}
    for key in ("features", "classes", "multilabel", "users", "items", "lowest", "highest"):
        if getattr(spec, key) and key not in allowed:
            raise ValueError(f"a {spec.task} task has no {key}")
    if missing := [key for key in needed if key != "highest" and not getattr(spec, key)]:
        raise ValueError(f"a {spec.task} task needs {' and '.join(missing)}")
    if spec.vocabulary and spec.task != "rating":
        raise ValueError(f"a {spec.task} task has no vocabulary")
    if spec.task == "rating" and not spec.lowest < spec.highest:
        raise ValueError("a rating task needs lowest below highest, the ends of the scale")
    if spec.task != "rating" and not spec.multilabel and _size(spec.classes) < 2:
        raise ValueError("classes: at least two, or multilabel: true for one yes-or-no question")
    columns = (*spec.feature_columns, *(spec.label_columns if spec.multilabel else ()))
    if taken := [name for name in RESERVED if name in columns]:
        raise ValueError(f"the column name {taken[0]!r} has a meaning of its own; choose another")
    if len(set(columns)) < len(columns):
        raise ValueError("a column is named as a feature and as a label")


def load_spec(root: str | Path) -> OwnSpec:
    """Read ``spec.yaml`` in `root`; nothing else is opened.

    Raises:
        UsageError: no such file, not YAML, or not a valid spec; every wrong key is named.
    """
    path = Path(root).expanduser() / SPEC_FILE
    fix = "see docs/own-data.md, or write an example with: secure-fgl init DIR"
    try:
        document = read_yaml(unicodedata.normalize("NFC", settings_text(path)))
    except OSError as error:
        raise _unread(path, error, fix) from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise UsageError(f"{path} is not YAML.", why=not_yaml(error), fix=fix) from error
    if not isinstance(document, dict):
        raise UsageError(f"{path} must hold keys and values at its top level.", fix=fix)
    try:
        return OwnSpec.model_validate(document)
    except ValidationError as error:
        raise UsageError(f"{path} is not a valid spec.", why=problems(error), fix=fix) from error


def _unread(path: Path, error: OSError, fix: str) -> UsageError:
    """The error for a spec that is not there; it says so if the path is one too deep or high."""
    folder, why = path.parent, ""
    above = Path(os.path.normpath(folder / ".."))
    if folder.is_file():
        why = f"{folder} is a file, and {SPEC_FILE} lies in a folder with those of all sites"
        fix = f"set data.root to {folder.parent}" if folder.name == SPEC_FILE else fix
    elif (above / SPEC_FILE).is_file():
        why = f"{folder} is one site's folder; {SPEC_FILE} lies beside it, for all sites"
        fix = f"set data.root to {above}"
    elif below := sorted(folder.glob(f"*/{SPEC_FILE}")):
        why = f"{SPEC_FILE} lies one folder further in"
        fix = f"set data.root to {below[0].parent}"
    return UsageError(f"{path} cannot be read ({error.strerror}).", why=why, fix=fix)

"""Tables of different kinds to measure on: from files, bundled with scikit-learn, and generated."""

from __future__ import annotations

from collections.abc import Callable, Collection
from pathlib import Path
from typing import NamedTuple

import numpy as np
import polars as pl
from numpy.typing import ArrayLike, NDArray
from sklearn import datasets as bundled

Floats = NDArray[np.float64]

DEFAULT_DATA = Path(__file__).resolve().parents[2] / "shared" / "data"


class Dataset(NamedTuple):
    """Rows to fit, rows held out, and the column a classifier should predict, if there is one."""

    train: pl.DataFrame
    test: pl.DataFrame
    target: str | None


def load(data: Path = DEFAULT_DATA, only: Collection[str] | None = None, seed: int = 0) -> dict[str, Dataset]:
    """The data sets by name, in the order of `LOADERS`; the ones whose files are not there are left out."""
    unknown = sorted(set(only or ()) - set(LOADERS))
    if unknown:
        raise ValueError(f"no such data set: {', '.join(unknown)}; there are {', '.join(LOADERS)}")
    found = {}
    for name, loader in LOADERS.items():
        if only is None or name in only:
            try:
                found[name] = loader(data, seed)
            except OSError as error:
                if only is not None:
                    raise
                print(f"{name}: skipped ({error})")
    return found


def split(frame: pl.DataFrame, target: str | None, seed: int) -> Dataset:
    """70 % of the rows, drawn at random, to fit; the rest held out."""
    shuffled = frame.sample(fraction=1.0, shuffle=True, seed=seed)
    rows = round(0.7 * frame.height)
    return Dataset(shuffled[:rows], shuffled[rows:], target)


# ---------------------------------------------------------------- from files


def adult(data: Path, seed: int) -> Dataset:
    """The adult census; its split is given."""
    return Dataset(
        pl.read_parquet(data / "adult_train.parquet"), pl.read_parquet(data / "adult_test.parquet"), "income"
    )


def twenty(name: str) -> Callable[[Path, int], Dataset]:
    """One of the Twenty Datasets of density estimation: binary columns; its validation rows are fitted."""

    def loader(data: Path, seed: int) -> Dataset:
        train, valid, test = (pl.read_parquet(data / f"{name}.{part}.parquet") for part in ("train", "valid", "test"))
        return Dataset(pl.concat([train, valid]), test, None)

    return loader


# ---------------------------------------------------------------- from scikit-learn


def tabular(features: ArrayLike, names: Collection[str] | None = None, label: ArrayLike | None = None) -> pl.DataFrame:
    """A frame of the features, and of the class as text if there is one."""
    array = np.asarray(features)
    columns = list(names) if names is not None else [f"x{i}" for i in range(array.shape[1])]
    frame = pl.DataFrame(array, schema=columns, orient="row")
    if label is None:
        return frame
    return frame.with_columns(pl.Series("label", [f"class_{value}" for value in np.asarray(label)]))


def breast_cancer(data: Path, seed: int) -> Dataset:
    """569 rows of 30 floats that are functions of one another, two classes."""
    loaded = bundled.load_breast_cancer()
    return split(tabular(loaded.data, loaded.feature_names, loaded.target), "label", seed)


def wine(data: Path, seed: int) -> Dataset:
    """178 rows of 13 floats, three classes."""
    loaded = bundled.load_wine()
    return split(tabular(loaded.data, loaded.feature_names, loaded.target), "label", seed)


def iris(data: Path, seed: int) -> Dataset:
    """150 rows of four floats, three classes."""
    loaded = bundled.load_iris()
    return split(tabular(loaded.data, loaded.feature_names, loaded.target), "label", seed)


def diabetes(data: Path, seed: int) -> Dataset:
    """442 rows of ten measurements and a progression score."""
    loaded = bundled.load_diabetes(scaled=False)
    frame = tabular(loaded.data, loaded.feature_names)
    return split(frame.with_columns(pl.Series("progression", loaded.target).cast(pl.Int64)), None, seed)


def digits(data: Path, seed: int) -> Dataset:
    """1,797 images of 8 x 8 small integers, ten classes."""
    loaded = bundled.load_digits()
    return split(tabular(loaded.data.astype(np.int16), loaded.feature_names, loaded.target), "label", seed)


def california(data: Path, seed: int) -> Dataset:
    """20,640 districts of nine floats; only if scikit-learn has it in its cache already."""
    loaded = bundled.fetch_california_housing(download_if_missing=False)
    frame = tabular(loaded.data, loaded.feature_names)
    return split(frame.with_columns(pl.Series("value", loaded.target)), None, seed)


def moons(data: Path, seed: int) -> Dataset:
    """Two interleaved half circles."""
    points, label = bundled.make_moons(6_000, noise=0.1, random_state=seed)
    return split(tabular(points, label=label), "label", seed)


def swiss_roll(data: Path, seed: int) -> Dataset:
    """A rolled-up sheet in three dimensions, and the position along it."""
    points, position = bundled.make_swiss_roll(6_000, noise=0.3, random_state=seed)
    return split(tabular(points).with_columns(pl.Series("position", position)), None, seed)


def classification(data: Path, seed: int) -> Dataset:
    """Twelve informative and noisy columns, four of them cut into named categories, three classes."""
    points, label = bundled.make_classification(
        6_000, n_features=12, n_informative=6, n_redundant=2, n_classes=3, random_state=seed
    )
    frame = tabular(points, label=label)
    cut = [
        pl.Series(f"x{i}", categorised(points[:, i], levels, np.random.default_rng([seed, i])))
        for i, levels in enumerate((2, 4, 8, 16))
    ]
    return split(frame.with_columns(cut), "label", seed)


# ---------------------------------------------------------------- generated


def toeplitz(data: Path, seed: int) -> Dataset:
    """Ten Gaussians with correlations 0.9^|i-j|: 2,000 rows to fit, 10,000 held out; truth 6.72 nats."""
    distance = np.abs(np.subtract.outer(np.arange(10), np.arange(10)))
    points = np.random.default_rng(seed).multivariate_normal(np.zeros(10), 0.9**distance, size=12_000)
    frame = tabular(points)
    return Dataset(frame[:2_000], frame[2_000:], None)


def heavy_tails(data: Path, seed: int) -> Dataset:
    """Lognormal, Pareto and Student columns that share a factor, and a type that decides the scale."""
    rng = np.random.default_rng(seed)
    rows = 10_000
    factor, kind = rng.normal(size=rows), rng.integers(0, 3, rows)
    frame = pl.DataFrame(
        {
            "kind": np.array(["small", "middle", "large"])[kind],
            "income": np.exp(8 + kind + 0.8 * factor + 0.5 * rng.normal(size=rows)),
            "wealth": np.exp(6 + 2 * factor + rng.normal(size=rows)).round(2),
            "claims": ((1 + rng.pareto(1.5, rows)) * np.exp(0.5 * factor)).round(2),
            "returns": rng.standard_t(2, rows) * (1 + kind) + factor,
            "visits": rng.negative_binomial(1, 1 / (1 + np.exp(1 + factor))),
        }
    )
    return split(frame, None, seed)


def mixed(data: Path, seed: int) -> Dataset:
    """15 columns of every kind, some of them missing here and there."""
    return split(mixed_table(10_000, 15, seed), None, seed)


def mixed_table(n: int, d: int, seed: int = 0) -> pl.DataFrame:
    """`n` rows of `d` columns that depend on four hidden factors.

    Every third column has 2 to 50 levels; the others are integers, two-decimal amounts, zero-inflated
    amounts, dates, booleans and floats in turn. One column in four is missing where a factor is high.
    """
    factors = np.random.default_rng([seed, n]).normal(size=(4, n))
    columns = []
    for position in range(d):
        rng = np.random.default_rng([seed, n, position])
        kind = kind_at(position)
        name = f"{kind}_{position}"
        loud, quiet = rng.permutation(4)[:2]
        score = 0.8 * factors[loud] + 0.4 * factors[quiet] + 0.45 * rng.normal(size=n)
        column = mixed_column(name, kind, score, factors[quiet], rng)
        if position % 4 == 1:
            missing = pl.Series(factors[quiet] + rng.normal(size=n) > 2.0)
            column = pl.select(pl.when(~missing).then(column).alias(name)).to_series()
        columns.append(column)
    return pl.DataFrame(columns)


MIXED_KINDS = ("integer", "amount", "spiked", "date", "boolean", "float")


def kind_at(position: int) -> str:
    """What the column of `mixed_table` at this position holds."""
    return "category" if position % 3 == 0 else MIXED_KINDS[(position - position // 3 - 1) % len(MIXED_KINDS)]


def mixed_column(name: str, kind: str, score: Floats, factor: Floats, rng: np.random.Generator) -> pl.Series:
    """One column of `mixed_table`: a function of a score, about standard normal, and of a factor."""
    if kind == "category":
        return pl.Series(name, categorised(score, int(rng.integers(2, 51)), rng))
    if kind == "integer":
        return pl.Series(name, np.round(40 + 12 * score).astype(np.int64))
    if kind == "amount":
        return pl.Series(name, (100 + 30 * score).round(2))
    if kind == "spiked":
        paid = factor + 0.5 * rng.normal(size=len(score)) > 0
        return pl.Series(name, np.where(paid, np.exp(3 + score), 0.0).round(2))
    if kind == "date":
        return pl.Series(name, np.round(19_000 + 300 * score).astype(np.int32)).cast(pl.Date)
    if kind == "boolean":
        return pl.Series(name, score > 0.5)
    return pl.Series(name, score)


def categorised(score: Floats, levels: int, rng: np.random.Generator) -> pl.Series:
    """The score cut into named levels of uneven shares, whose names say nothing of their order."""
    shares = rng.dirichlet(np.full(levels, 2.0)).cumsum()[:-1]
    names = pl.Series([f"level_{i:02d}" for i in rng.permutation(levels)])
    return names.gather(np.searchsorted(np.quantile(score, shares), score))


LOADERS: dict[str, Callable[[Path, int], Dataset]] = {
    "adult": adult,
    "nltcs": twenty("nltcs"),
    "plants": twenty("plants"),
    "dna": twenty("dna"),
    "breast_cancer": breast_cancer,
    "wine": wine,
    "iris": iris,
    "diabetes": diabetes,
    "digits": digits,
    "california": california,
    "moons": moons,
    "swiss_roll": swiss_roll,
    "classification": classification,
    "toeplitz": toeplitz,
    "heavy_tails": heavy_tails,
    "mixed": mixed,
}

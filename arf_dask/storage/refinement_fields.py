"""Write and parse the refinement of a model: its features and boosted trees, validated whenever a model is loaded."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from arf_dask.data.stored_fields import parse_fields, require
from arf_dask.forest.fitted import Fitted
from arf_dask.refinement.boosted_trees import LEAF, WORD, BoostedTrees, tree_bounds
from arf_dask.refinement.features import LEVEL, MOST_CODES, N_CODES, NUMBERS, Feature, reads
from arf_dask.refinement.ratio import Gain, Refinement
from arf_dask.storage.fields import MODEL_JSON
from arf_dask.storage.layout import LEFT, Arrays, check_numbered, runs_of, table_of
from arf_dask.storage.validation import preorder_children

NODES, LEVELS, EDGES = "boosted_nodes.parquet", "feature_levels.parquet", "feature_edges.parquet"
MOST_NODES = 2**21  # of all boosted trees; a node takes 256 bytes in memory
MOST_LOG = 700.0  # of ratios, above which they overflow
LEAST_ACCEPTANCE = 1e-4  # share of rows that are accepted; fits stay far above it
_GAIN = {"nats": float, "error": float}
_NUMBERS = {"base": float, "log_cap": float, "log_z": float, "z_error": float}
_REFINEMENT = {"features": list, "stages": list, "slacks": list, **_NUMBERS, "gain": dict}
_FEATURE = {"kind": str, "columns": list, "modelled": bool}


def describe_refinement(refinement: Refinement) -> dict[str, Any]:
    """Return what is stored in `model.json`: every part of a refinement that is not stored as a table."""
    return {
        "features": [
            {"kind": one.kind, "columns": list(one.columns), "modelled": bool(one.modelled)}
            for one in refinement.features
        ],
        "base": float(refinement.trees.base),
        "stages": [int(stage) for stage in refinement.trees.stages],
        "slacks": [float(slack) for slack in refinement.slacks],
        "log_cap": float(refinement.log_cap),
        "log_z": float(refinement.log_z),
        "z_error": float(refinement.z_error),
        "gain": {"nats": float(refinement.gain.nats), "error": float(refinement.gain.error)},
    }


def refinement_tables(refinement: Refinement) -> dict[str, Iterator[Any]]:
    """Return an iterator of Arrow tables per file of a refinement."""
    features = refinement.features
    return {
        NODES: iter([_node_table(refinement.trees)]),
        LEVELS: (_value_table(LEVELS, number, text=list(one.levels)) for number, one in enumerate(features)),
        EDGES: (_value_table(EDGES, number, edge=one.edges) for number, one in enumerate(features)),
    }


def parse_refinement(data: Any, files: Mapping[str, Arrays]) -> Refinement:
    """Rebuild a refinement from its files. Call `check_refinement` on the model afterwards to validate it."""
    fields = parse_fields(data, _REFINEMENT, MODEL_JSON, "refinement")
    gain = parse_fields(fields["gain"], _GAIN, MODEL_JSON, "refinement: gain")
    is_whole = all(type(stage) is int for stage in fields["stages"])
    require(is_whole, MODEL_JSON, "refinement: stages that are no whole numbers")
    require(all(type(one) is float for one in fields["slacks"]), MODEL_JSON, "refinement: slacks that are no numbers")
    features = _parse_features(fields["features"], files)
    trees = _parse_trees(files[NODES], fields["base"], tuple(fields["stages"]))
    limits = {name: fields[name] for name in ("log_cap", "log_z", "z_error")}
    return Refinement(features, trees, tuple(fields["slacks"]), **limits, gain=Gain(**gain))


def check_refinement(fitted: Fitted) -> None:
    """Raise a ModelFormatError for the first inconsistency of the refinement of a model, if it has one."""
    refinement = fitted.refinement
    if refinement is None:
        return
    for number, feature in enumerate(refinement.features):
        _check_feature(feature, fitted, f"feature {number}")
    _check_trees(refinement.trees, len(refinement.features))
    _check_limits(refinement)


def _node_table(trees: BoostedTrees) -> Any:
    starts, stops = tree_bounds(trees.tree)
    node = np.arange(len(trees.tree)) - np.repeat(starts, stops - starts)
    bits = np.packbits(trees.left_codes, axis=1, bitorder="little").view("<u8").astype(np.uint64)
    left = {name: np.ascontiguousarray(bits[:, number]) for number, name in enumerate(LEFT)}
    return table_of(NODES, tree=trees.tree, node=node, feature=trees.feature, **left, value=trees.value)


def _value_table(file: str, number: int, **values: Any) -> Any:
    (n_values,) = map(len, values.values())
    return table_of(file, feature=np.full(n_values, number), code=np.arange(1, n_values + 1), **values)


def _parse_features(data: list[Any], files: Mapping[str, Arrays]) -> tuple[Feature, ...]:
    levels, edges = _by_feature(files[LEVELS], LEVELS, len(data)), _by_feature(files[EDGES], EDGES, len(data))
    features = []
    for number, entry in enumerate(data):
        fields = parse_fields(entry, _FEATURE, MODEL_JSON, f"feature {number}")
        is_valid = all(isinstance(name, str) for name in fields["columns"])
        require(is_valid, MODEL_JSON, f"feature {number}: its columns are no names")
        texts = tuple(files[LEVELS]["text"][levels[number]].tolist())
        upper_ends = files[EDGES]["edge"][edges[number]]
        features.append(Feature(fields["kind"], tuple(fields["columns"]), fields["modelled"], texts, upper_ends))
    return tuple(features)


def _by_feature(values: Arrays, file: str, n_features: int) -> list[slice]:
    """Return the rows of every feature; their codes must be 1, 2, ..."""
    runs = runs_of(values["feature"], n_features, file, "feature")
    check_numbered(values["code"].astype(np.int64) - 1, runs, file, "code")
    return runs


def _parse_trees(nodes: Arrays, base: float, stages: tuple[int, ...]) -> BoostedTrees:
    n_nodes = len(nodes["tree"])
    require(0 < n_nodes <= MOST_NODES, NODES, f"not between 1 and {MOST_NODES:,} nodes")
    tree = nodes["tree"].astype(np.int64)
    runs = runs_of(nodes["tree"], min(int(tree.max()) + 1, n_nodes), NODES, "tree")
    check_numbered(nodes["node"], runs, NODES, "node")
    bits = np.column_stack([nodes[name] for name in LEFT]).astype("<u8")
    left_codes = np.unpackbits(bits.view(np.uint8), axis=1, bitorder="little").astype(bool)
    return BoostedTrees(tree, nodes["feature"], left_codes, nodes["value"], base, stages)


def _check_feature(feature: Feature, fitted: Fitted, where: str) -> None:
    is_level = feature.kind == LEVEL
    require(is_level or feature.kind in NUMBERS, MODEL_JSON, f"{where}: unknown kind {feature.kind[:40]!r}")
    modelled = {name: fitted.schema.dtypes[name] for name in fitted.relations.owners}
    dtypes = modelled if feature.modelled else fitted.dtypes
    unknown = [name for name in feature.columns if name not in dtypes or name in fitted.schema.keys]
    require(not unknown, MODEL_JSON, f"{where}: computed from a column that is not there, or an identifier")
    is_read = reads(feature.kind, [dtypes[name] for name in feature.columns])
    require(is_read, MODEL_JSON, f"{where}: {feature.kind!r} cannot be computed from columns of this number and type")
    levels, edges = feature.levels, feature.edges
    require(len(levels) if is_level else not levels, LEVELS, f"{where}: levels needless or missing")
    require(len(set(levels)) == len(levels), LEVELS, f"{where}: a level occurs twice")
    require(not len(edges) if is_level else len(edges), EDGES, f"{where}: edges needless or missing")
    is_ascending = bool(np.all(np.isfinite(edges)) and np.all(np.diff(edges) > 0))
    require(is_ascending, EDGES, f"{where}: edges that are not ascending numbers")
    require(feature.n_codes <= MOST_CODES, LEVELS if is_level else EDGES, f"{where}: more than {MOST_CODES} codes")


def _check_trees(trees: BoostedTrees, n_features: int) -> None:
    n_nodes = len(trees.tree)
    lengths = {len(trees.tree), len(trees.feature), len(trees.left_codes), len(trees.value)}
    is_numbered = n_nodes > 0 and trees.tree[0] == 0 and bool(np.all(np.isin(np.diff(trees.tree), (0, 1))))
    require(is_numbered, NODES, "trees that are unsorted, missing or repeated")
    require(len(lengths) == 1 and trees.left_codes.shape[1:] == (N_CODES,), NODES, "needs the codes of every node")
    is_known = bool(np.all(trees.feature >= LEAF) and np.all(trees.feature < n_features))
    require(is_known, NODES, "an unknown feature")
    is_leaf = trees.feature == LEAF
    for number, (start, stop) in enumerate(zip(*tree_bounds(trees.tree), strict=True)):
        inner = ~is_leaf[start:stop]
        is_tree = preorder_children(inner) is not None
        require(is_tree, NODES, f"tree {number}: the nodes are no binary tree in preorder")
        require(np.count_nonzero(~inner) <= WORD, NODES, f"tree {number}: more than {WORD} leaves")
    require(not np.any(trees.value[~is_leaf]), NODES, "a value that is not at a leaf")
    require(not np.any(trees.left_codes[is_leaf]), NODES, "codes that go left at a leaf")
    require(_is_log(trees.value), NODES, "a value that is no logarithm of a ratio")


def _check_limits(refinement: Refinement) -> None:
    trees, gain = refinement.trees, refinement.gain
    stages = (0, *trees.stages, trees.n_trees)
    is_ascending = all(first < last for first, last in pairwise(stages))
    require(is_ascending, MODEL_JSON, "refinement: stages that do not ascend, or end after the last tree")
    n_stages = len(trees.stages)
    require(len(refinement.slacks) == n_stages, MODEL_JSON, f"refinement: needs {n_stages} slacks, one per stage")
    logarithms = [trees.base, *refinement.slacks, refinement.log_cap, refinement.log_z]
    require(_is_log(np.array(logarithms)), MODEL_JSON, "refinement: a number that is no logarithm of a ratio")
    is_valid = LEAST_ACCEPTANCE <= refinement.acceptance <= 1 + 1e-6
    require(is_valid, MODEL_JSON, "refinement: log_z and log_cap belong to no share of accepted rows")
    numbers = np.array([refinement.z_error, gain.nats, gain.error])
    is_valid = bool(np.all(np.isfinite(numbers))) and refinement.z_error >= 0 and gain.error >= 0
    require(is_valid, MODEL_JSON, "refinement: a gain or a standard error out of range")


def _is_log(values: NDArray[np.float64]) -> bool:
    return bool(np.all(np.abs(values) <= MOST_LOG))  # false for NaN

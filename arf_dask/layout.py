"""A model as keyed tables and plain facts, and back. What the columns of every file are is said here only.

`lower` and `upper` of an interval follow from the nodes and the edges, and a right child from which nodes are
leaves: neither is stored. Keys are stored, though their order implies them: files can be read on their own.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from arf_dask.adversary import Round
from arf_dask.facts import FACTS, level_values, require, take_column, take_facts
from arf_dask.forest import LEAF, Ints, Tree
from arf_dask.schema import Column, Floats, Schema, Variable
from arf_dask.tables import Entries, Tables, first_entries, smallest_unsigned
from arf_dask.validation import preorder_children

Arrays = Mapping[str, NDArray[Any]]  # the columns of one file


def _schema(**columns: tuple[Any, bool]) -> Any:
    return pa.schema([pa.field(name, kind, nullable=may_miss) for name, (kind, may_miss) in columns.items()])


_ID, _COUNT = (pa.uint32(), False), (pa.int64(), False)
_NUMBER, _FLAG = (pa.float64(), False), (pa.bool_(), False)
SCHEMAS: dict[str, Any] = {
    # One row per level or spike: a number on the column's axis, an exact text, or both.
    "levels.parquet": _schema(column=_ID, number=(pa.float64(), True), text=(pa.string(), True)),
    # One row per (variable, state): the codes it covers, both ends included.
    "states.parquet": _schema(variable=_ID, state=_ID, interval=_FLAG, code_low=_ID, code_high=_ID),
    # One row per (variable, member, state).
    "tokens.parquet": _schema(variable=_ID, member=_ID, state=_ID, token=_ID),
    # One row per (variable, code): training rows; the edge above it, and whether a new interval begins there.
    "bins.parquet": _schema(variable=_ID, code=_ID, rows=_COUNT, edge=(pa.float64(), True), border=_FLAG),
    # One row per (tree, node), in preorder; feature is -1 at leaves.
    "nodes.parquet": _schema(tree=_ID, node=_ID, feature=(pa.int32(), False), threshold=_ID),
    # One row per (tree, leaf), leaves counted over all trees.
    "leaves.parquet": _schema(tree=_ID, leaf=_ID, rows=_COUNT),
    # One row per (variable, leaf, state) that holds training rows.
    "discrete.parquet": _schema(variable=_ID, leaf=_ID, state=_ID, count=_ID),
    # One row per (variable, leaf, state) of those whose state is an interval.
    "continuous.parquet": _schema(variable=_ID, leaf=_ID, state=_ID, mu=_NUMBER, sigma=_NUMBER),
}
# Sorted keys: as differences they take a tenth of a byte. Other numbers compress best with their bytes apart.
SORTED = ("column", "variable", "member", "tree", "node", "leaf", "code")
_ROUND = {"round": int, "accuracy": float, "leaves": int}
_VARIABLE = {"columns": list, "first_bin": int, "strength": float}


def pieces(tables: Tables) -> dict[str, Iterator[Any]]:
    """The Arrow tables of every file; those of large files are made one variable or tree at a time."""
    variables = list(enumerate(tables.schema.variables))
    return {
        "levels.parquet": (_level_table(i, column) for i, column in enumerate(tables.schema.columns)),
        "states.parquet": (_state_table(i, variable) for i, variable in variables),
        "tokens.parquet": (_token_table(i, variable) for i, variable in variables),
        "bins.parquet": (_bin_table(i, variable, tables.histograms[i]) for i, variable in variables),
        "nodes.parquet": (_node_table(i, tree) for i, tree in enumerate(tables.trees)),
        "leaves.parquet": iter([_leaf_table(tables)]),
        "discrete.parquet": (_discrete_table(i, tables.entries[i]) for i, _ in variables),
        "continuous.parquet": (_continuous_table(i, v, tables.entries[i]) for i, v in variables if v.interval.any()),
    }


def assemble_tables(facts: Mapping[str, Any], files: Mapping[str, Arrays]) -> Tables:
    """The model that `describe` and `pieces` were made of, not yet checked."""
    columns = _take_columns(facts["columns"], files["levels.parquet"])
    variables = _take_variables(facts["variables"], files)
    trees = _take_trees(files["nodes.parquet"])
    return Tables(
        Schema(columns, tuple(variables), facts["n_rows"], tuple(facts["gates"])),
        trees,
        _take_leaves(files["leaves.parquet"], trees),
        _take_entries(variables, files, sum(int((tree.left == LEAF).sum()) for tree in trees)),
        _take_histograms(len(variables), files["bins.parquet"]),
        np.array([variable["strength"] for variable in facts["variables"]], dtype=np.float64),
        facts["family"],
        facts["support"],
        [Round(**take_facts(held, _ROUND, "rounds")) for held in facts["rounds"]],
        facts["options"],
    )


def _level_table(place: int, column: Column) -> Any:
    number, text = level_values(column)
    cells = {"number": number.to_arrow(), "text": text.to_arrow()}
    return _table("levels.parquet", column=np.full(len(number), place), **cells)


def _table(file: str, **columns: Any) -> Any:
    schema = SCHEMAS[file]
    return pa.table([pa.array(columns[f.name]).cast(f.type) for f in schema], schema=schema)


def _state_table(number: int, variable: Variable) -> Any:
    n = variable.n_states
    ids = {"variable": np.full(n, number), "state": np.arange(n), "interval": variable.interval}
    return _table("states.parquet", **ids, code_low=variable.code_low, code_high=variable.code_high)


def _token_table(number: int, variable: Variable) -> Any:
    n, members = variable.tokens.shape
    ids = {"variable": np.full(n * members, number), "member": np.repeat(np.arange(members), n)}
    return _table("tokens.parquet", **ids, state=np.tile(np.arange(n), members), token=variable.tokens.T.ravel())


def _bin_table(number: int, variable: Variable, histogram: NDArray[np.int64]) -> Any:
    n, first, edges = len(histogram), variable.first_bin, variable.edges
    edge = np.full(n, np.nan)
    edge[first : first + len(edges)] = edges
    border = np.isin(edge, variable.segments)
    ids = {"variable": np.full(n, number), "code": np.arange(n), "rows": histogram}
    return _table("bins.parquet", **ids, edge=pa.array(edge, mask=np.isnan(edge)), border=border)


def _node_table(number: int, tree: Tree) -> Any:
    n = len(tree.feature)
    ids = {"tree": np.full(n, number), "node": np.arange(n)}
    return _table("nodes.parquet", **ids, feature=tree.feature, threshold=tree.threshold)


def _leaf_table(tables: Tables) -> Any:
    tree = np.repeat(np.arange(len(tables.trees)), np.diff(tables.starts))
    return _table("leaves.parquet", tree=tree, leaf=np.arange(tables.n_leaves), rows=tables.coverage)


def _discrete_table(number: int, entries: Entries) -> Any:
    variable = np.full(len(entries.state), number)
    return _table("discrete.parquet", variable=variable, leaf=entries.leaf, state=entries.state, count=entries.rows)


def _continuous_table(number: int, variable: Variable, entries: Entries) -> Any:
    found = variable.interval[entries.state]
    ids = {
        "variable": np.full(int(found.sum()), number),
        "leaf": entries.leaf[found],
        "state": entries.state[found],
    }
    return _table("continuous.parquet", **ids, mu=entries.mu, sigma=entries.sigma)


def _take_columns(facts: list[Any], levels: Arrays) -> tuple[Column, ...]:
    runs = _runs(levels["column"], len(facts), "levels.parquet", "column")
    parts = [(levels["number"][run], levels["text"][run].tolist()) for run in runs]
    return tuple(take_column(facts[place], place, *part) for place, part in enumerate(parts))


def _take_variables(facts: list[Any], files: Mapping[str, Arrays]) -> list[Variable]:
    known = [take_facts(entry, _VARIABLE, f"variable {number}") for number, entry in enumerate(facts)]
    states, tokens, bins = (files[f"{name}.parquet"] for name in ("states", "tokens", "bins"))
    of_states = _runs(states["variable"], len(facts), "states.parquet", "variable")
    of_tokens = _runs(tokens["variable"], len(facts), "tokens.parquet", "variable")
    of_bins = _runs(bins["variable"], len(facts), "bins.parquet", "variable")
    _check_numbered(states["state"], of_states, "states.parquet", "state")
    _check_numbered(bins["code"], of_bins, "bins.parquet", "code")
    return [
        _take_variable(number, entry, _cut(states, a), _cut(tokens, b), _cut(bins, c))
        for number, (entry, a, b, c) in enumerate(zip(known, of_states, of_tokens, of_bins, strict=True))
    ]


def _take_variable(number: int, facts: dict[str, Any], states: Arrays, tokens: Arrays, bins: Arrays) -> Variable:
    where, members = f"variable {number}", facts["columns"]
    require(members and all(type(i) is int for i in members), FACTS, f"{where}: its columns are no numbers")
    low, high = _small(states["code_low"], "states.parquet"), _small(states["code_high"], "states.parquet")
    fine = len(low) > 0 and np.all(low <= high)
    require(fine, "states.parquet", f"{where}: no states, or one that ends before it begins")
    edges, segments = _take_edges(where, facts["first_bin"], bool(states["interval"].any()), bins)
    table = _take_tokens(where, len(low), len(members), tokens)
    return Variable(tuple(members), table, states["interval"], low, high, edges, segments, facts["first_bin"])


def _take_tokens(where: str, n: int, members: int, tokens: Arrays) -> Ints:
    full = np.array_equal(tokens["member"], np.repeat(np.arange(members), n))
    full = full and np.array_equal(tokens["state"], np.tile(np.arange(n), members))
    require(full, "tokens.parquet", f"{where}: needs one token per member and state, in order")
    return np.ascontiguousarray(_small(tokens["token"], "tokens.parquet").reshape(members, n).T)


def _take_edges(where: str, first: int, intervals: bool, bins: Arrays) -> tuple[Floats, Floats]:
    """Inner edges of the bins, and those among them where a new interval begins."""
    edge, border, n = bins["edge"], bins["border"], len(bins["edge"])
    held = np.flatnonzero(~np.isnan(edge))
    # Points alone have no edges; a line has one between every two bins, and the last bin has none.
    wanted = np.arange(first, n - 1) if intervals and 0 <= first < n else np.empty(0)
    fine = first >= 0 and np.array_equal(held, wanted) and not np.any(border[np.isnan(edge)])
    require(fine, "bins.parquet", f"{where}: edges or borders missing or out of place")
    return edge[held], edge[border]


def _take_histograms(n_variables: int, bins: Arrays) -> list[NDArray[np.int64]]:
    return [bins["rows"][run] for run in _runs(bins["variable"], n_variables, "bins.parquet", "variable")]


def _take_trees(nodes: Arrays) -> list[Tree]:
    file, tree = "nodes.parquet", nodes["tree"]
    # No tree is empty, so that there are no more trees than nodes.
    runs = _runs(tree, min(int(tree.max(initial=0)) + 1, len(tree)), file, "tree")
    _check_numbered(nodes["node"], runs, file, "node")
    thresholds = _small(nodes["threshold"], file)
    trees = []
    for number, run in enumerate(runs):
        feature = nodes["feature"][run]
        children = preorder_children(feature >= 0)
        require(children is not None, file, f"tree {number}: the nodes are no binary tree in preorder")
        assert children is not None
        trees.append(Tree(feature, thresholds[run], *children))
    return trees


def _take_leaves(leaves: Arrays, trees: list[Tree]) -> NDArray[np.int64]:
    sizes = [int((tree.left == LEAF).sum()) for tree in trees]
    fine = np.array_equal(leaves["tree"], np.repeat(np.arange(len(trees)), sizes))
    fine = fine and np.array_equal(leaves["leaf"], np.arange(len(leaves["leaf"])))
    require(fine, "leaves.parquet", "leaves that are not those of the trees in nodes.parquet, in order")
    return leaves["rows"]


def _take_entries(variables: list[Variable], files: Mapping[str, Arrays], n_leaves: int) -> list[Entries]:
    discrete, continuous = files["discrete.parquet"], files["continuous.parquet"]
    runs = _runs(discrete["variable"], len(variables), "discrete.parquet", "variable")
    of_intervals = _runs(continuous["variable"], len(variables), "continuous.parquet", "variable")
    entries = []
    for number, (variable, a, b) in enumerate(zip(variables, runs, of_intervals, strict=True)):
        counted, curves = _cut(discrete, a), _cut(continuous, b)
        known = np.all(counted["state"] < variable.n_states)
        require(known, "discrete.parquet", f"variable {number}: unknown states")
        leaf = counted["leaf"]
        require(not len(leaf) or leaf.max() < n_leaves, "discrete.parquet", f"variable {number}: unknown leaves")
        sorted_ = np.all(leaf[1:] >= leaf[:-1])
        require(sorted_, "discrete.parquet", f"variable {number}: rows that are unsorted or repeated")
        found = variable.interval[counted["state"]]
        same = np.array_equal(leaf[found], curves["leaf"])
        same = same and np.array_equal(counted["state"][found], curves["state"])
        require(
            same,
            "continuous.parquet",
            f"variable {number}: rows are not those of its intervals in discrete.parquet",
        )
        state = counted["state"].astype(smallest_unsigned(variable.n_states))
        rows = counted["count"].astype(smallest_unsigned(int(counted["count"].max(initial=1))))
        first = first_entries(leaf, n_leaves)
        entries.append(Entries(first, state, rows, curves["mu"], curves["sigma"]))
    return entries


def _small(ids: NDArray[np.uint32], file: str) -> Ints:
    require(np.all(ids < 2**31), file, "a number of 2**31 or more")
    return ids.astype(np.int32)


def _cut(arrays: Arrays, run: slice) -> Arrays:
    return {name: part[run] for name, part in arrays.items()}


def _runs(group: NDArray[np.uint32], n_groups: int, file: str, what: str) -> list[slice]:
    """The run of rows of every group; raises unless groups are known and in order."""
    require(np.all(group[1:] >= group[:-1]), file, f"rows that are not sorted by {what}")
    require(not len(group) or group[-1] < n_groups, file, f"an unknown {what}")
    bounds = np.searchsorted(group, np.arange(n_groups + 1))
    return [slice(int(a), int(b)) for a, b in pairwise(bounds)]


def _check_numbered(ids: NDArray[np.uint32], runs: list[slice], file: str, what: str) -> None:
    """Raise unless ids count 0, 1, .. in every run."""
    sizes = np.array([run.stop - run.start for run in runs], dtype=np.int64)
    wanted = np.arange(len(ids)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    require(np.array_equal(ids, wanted), file, f"{what}s that are unsorted, missing or repeated")

"""Convert a model to keyed Arrow tables and back. The columns of every file are defined here and only here.

`lower` and `upper` of an interval follow from the nodes and the edges, and right children follow from which nodes are
leaves, so neither is stored. Keys are stored although their order implies them, so that a file can be read on its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from arf_dask.data.stored_fields import parse_fields, require
from arf_dask.forest.dependence import NO_DEPENDENCE, Dependence, Edge, count_bins, is_forest
from arf_dask.forest.tables import Entries, LeafTables, Round, first_entries, smallest_unsigned, variable_tables
from arf_dask.forest.trees import LEAF, Tree
from arf_dask.schema.columns import Column, Schema, Variable
from arf_dask.stats.log_sums import run_starts
from arf_dask.storage.fields import MODEL_JSON, level_values, parse_column
from arf_dask.storage.schema_checks import check_schema
from arf_dask.storage.validation import preorder_children
from arf_dask.typing import Floats, Ints

Arrays = Mapping[str, NDArray[Any]]  # the columns of one file


def _schema(**columns: tuple[Any, bool]) -> Any:
    return pa.schema([pa.field(name, kind, nullable=may_miss) for name, (kind, may_miss) in columns.items()])


LEFT = ("left_0", "left_1", "left_2", "left_3")
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
    # One row per (variable, leaf, state) with training rows.
    "discrete.parquet": _schema(variable=_ID, leaf=_ID, state=_ID, count=_ID),
    # One row per (variable, leaf, state) with training rows whose state is an interval.
    "continuous.parquet": _schema(variable=_ID, leaf=_ID, state=_ID, mu=_NUMBER, sigma=_NUMBER),
}
# Present only if the model has a dependency tree inside leaves.
DEPENDENCE_SCHEMAS: dict[str, Any] = {
    # One row per (variable, run of codes in one bin of the dependence): its first code.
    "cuts.parquet": _schema(variable=_ID, code=_ID, bin=_ID),
    # One row per edge of the dependency tree, parents before their children.
    "links.parquet": _schema(link=_ID, parent=_ID, child=_ID, information=_NUMBER),
    # One row per (edge, parent bin, child bin): training rows, and their ratio to the rows expected under independence.
    "ratios.parquet": _schema(link=_ID, parent_bin=_ID, child_bin=_ID, count=_COUNT, ratio=_NUMBER),
}
# Present only if the model is refined.
REFINEMENT_SCHEMAS: dict[str, Any] = {
    # One row per (boosted tree, node), in preorder; feature is -1 at leaves, the bits of left_0 to left_3 are the codes
    # 0 to 255 that go left.
    "boosted_nodes.parquet": _schema(
        tree=_ID, node=_ID, feature=(pa.int32(), False), **dict.fromkeys(LEFT, (pa.uint64(), False)), value=_NUMBER
    ),
    # One row per level of a feature of the refinement: the text of code 1, 2, ...
    "feature_levels.parquet": _schema(feature=_ID, code=_ID, text=(pa.string(), False)),
    # One row per edge of a feature of the refinement: the upper end of code 1, 2, ...
    "feature_edges.parquet": _schema(feature=_ID, code=_ID, edge=_NUMBER),
}
ALL_SCHEMAS = SCHEMAS | DEPENDENCE_SCHEMAS | REFINEMENT_SCHEMAS
# Sorted keys are delta-encoded (about a tenth of a byte each); other numbers compress best with split byte streams.
SORTED = ("column", "variable", "member", "tree", "node", "leaf", "code", "link")
_ROUND = {"round": int, "accuracy": float, "leaves": int}
_VARIABLE = {"columns": list, "first_bin": int, "strength": float}


def file_tables(tables: LeafTables) -> dict[str, Iterator[Any]]:
    """Return an iterator of Arrow tables per file; large files yield one table per variable or tree."""
    variables = tables.variables
    interval_tables = [table for table in variables if table.variable.interval.any()]
    files = {
        "levels.parquet": (_level_table(i, column) for i, column in enumerate(tables.schema.columns)),
        "states.parquet": (_state_table(variable_table.index, variable_table.variable) for variable_table in variables),
        "tokens.parquet": (_token_table(variable_table.index, variable_table.variable) for variable_table in variables),
        "bins.parquet": (
            _bin_table(variable_table.index, variable_table.variable, variable_table.histogram)
            for variable_table in variables
        ),
        "nodes.parquet": (_node_table(i, tree) for i, tree in enumerate(tables.trees)),
        "leaves.parquet": iter([_leaf_table(tables)]),
        "discrete.parquet": (
            _discrete_table(variable_table.index, variable_table.entries) for variable_table in variables
        ),
        "continuous.parquet": (
            _continuous_table(variable_table.index, variable_table.variable, variable_table.entries)
            for variable_table in interval_tables
        ),
    }
    if tables.dependence.edges:
        edges = tables.dependence.edges
        files["cuts.parquet"] = (_cut_table(i, bins) for i, bins in enumerate(tables.dependence.bins))
        files["links.parquet"] = iter([_link_table(edges)])
        files["ratios.parquet"] = (_ratio_table(number, edge) for number, edge in enumerate(edges))
    return files


def assemble_tables(fields: Mapping[str, Any], files: Mapping[str, Arrays]) -> LeafTables:
    """Rebuild a model from the content of its files. Call `check_tables` afterwards to validate it."""
    columns = _read_columns(fields["columns"], files["levels.parquet"])
    variables = _read_variables(fields["variables"], files)
    trees = _read_trees(files["nodes.parquet"])
    schema = Schema(columns, tuple(variables), fields["n_rows"], tuple(fields["gates"]))
    coverage = _read_leaves(files["leaves.parquet"], trees)
    entries = _read_entries(variables, files, sum(int((tree.left == LEAF).sum()) for tree in trees))
    histograms = _read_histograms(len(variables), files["bins.parquet"])
    check_schema(schema)  # variable tables refer to columns, which must exist
    strengths = [variable["strength"] for variable in fields["variables"]]
    empty_tables = variable_tables(schema, histograms, strengths, fields["support"])
    return LeafTables(
        schema,
        trees,
        coverage,
        tuple(replace(table, entries=leaf_entries) for table, leaf_entries in zip(empty_tables, entries, strict=True)),
        fields["family"],
        fields["support"],
        [Round(**parse_fields(entry, _ROUND, MODEL_JSON, "rounds")) for entry in fields["rounds"]],
        _read_dependence(files, variables) if "links.parquet" in files else NO_DEPENDENCE,
    )


def _level_table(index: int, column: Column) -> Any:
    number, text = level_values(column)
    cells = {"number": number.to_arrow(), "text": text.to_arrow()}
    return table_of("levels.parquet", column=np.full(len(number), index), **cells)


def table_of(file: str, **columns: Any) -> Any:
    """Return an Arrow table with the columns and types of a file."""
    schema = ALL_SCHEMAS[file]
    return pa.table([pa.array(columns[f.name]).cast(f.type) for f in schema], schema=schema)


def _state_table(number: int, variable: Variable) -> Any:
    n_states = variable.n_states
    ids = {"variable": np.full(n_states, number), "state": np.arange(n_states), "interval": variable.interval}
    return table_of("states.parquet", **ids, code_low=variable.code_low, code_high=variable.code_high)


def _token_table(number: int, variable: Variable) -> Any:
    n_states, n_members = variable.tokens.shape
    ids = {"variable": np.full(n_states * n_members, number), "member": np.repeat(np.arange(n_members), n_states)}
    return table_of(
        "tokens.parquet", **ids, state=np.tile(np.arange(n_states), n_members), token=variable.tokens.T.ravel()
    )


def _bin_table(number: int, variable: Variable, histogram: NDArray[np.int64]) -> Any:
    n_codes, first, edges = len(histogram), variable.first_bin, variable.edges
    upper_edges = np.full(n_codes, np.nan)
    upper_edges[first : first + len(edges)] = edges
    is_border = np.isin(upper_edges, variable.segments)
    ids = {"variable": np.full(n_codes, number), "code": np.arange(n_codes), "rows": histogram}
    return table_of("bins.parquet", **ids, edge=pa.array(upper_edges, mask=np.isnan(upper_edges)), border=is_border)


def _node_table(number: int, tree: Tree) -> Any:
    n_nodes = len(tree.feature)
    ids = {"tree": np.full(n_nodes, number), "node": np.arange(n_nodes)}
    return table_of("nodes.parquet", **ids, feature=tree.feature, threshold=tree.threshold)


def _leaf_table(tables: LeafTables) -> Any:
    tree_ids = np.repeat(np.arange(len(tables.trees)), np.diff(tables.starts))
    return table_of("leaves.parquet", tree=tree_ids, leaf=np.arange(tables.n_leaves), rows=tables.coverage)


def _discrete_table(number: int, entries: Entries) -> Any:
    variable_ids = np.full(len(entries.state), number)
    return table_of(
        "discrete.parquet", variable=variable_ids, leaf=entries.leaf, state=entries.state, count=entries.rows
    )


def _continuous_table(number: int, variable: Variable, entries: Entries) -> Any:
    is_interval = variable.interval[entries.state]
    ids = {
        "variable": np.full(int(is_interval.sum()), number),
        "leaf": entries.leaf[is_interval],
        "state": entries.state[is_interval],
    }
    return table_of("continuous.parquet", **ids, mu=entries.mu, sigma=entries.sigma)


def _cut_table(number: int, bins: Ints) -> Any:
    first_codes = run_starts(bins)
    return table_of("cuts.parquet", variable=np.full(len(first_codes), number), code=first_codes, bin=bins[first_codes])


def _link_table(edges: tuple[Edge, ...]) -> Any:
    parent, child, information = (
        [getattr(edge, name) for edge in edges] for name in ("parent", "child", "information")
    )
    ids = {"link": np.arange(len(edges)), "parent": parent, "child": child}
    return table_of("links.parquet", **ids, information=information)


def _ratio_table(number: int, edge: Edge) -> Any:
    n_parent_bins, n_child_bins = edge.observed.shape
    ids = {
        "link": np.full(n_parent_bins * n_child_bins, number),
        "parent_bin": np.repeat(np.arange(n_parent_bins), n_child_bins),
        "child_bin": np.tile(np.arange(n_child_bins), n_parent_bins),
    }
    return table_of("ratios.parquet", **ids, count=edge.observed.ravel(), ratio=edge.ratios.ravel())


def _read_dependence(files: Mapping[str, Arrays], variables: list[Variable]) -> Dependence:
    n_variables, n_codes = len(variables), [variable.n_codes for variable in variables]
    cuts, links, ratios = (files[name] for name in DEPENDENCE_SCHEMAS)
    runs = runs_of(cuts["variable"], n_variables, "cuts.parquet", "variable")
    bins = tuple(_read_bins(_cut(cuts, run), size) for run, size in zip(runs, n_codes, strict=True))
    bin_counts = [count_bins(variable_bins) for variable_bins in bins]
    parents, children = (links[name].tolist() for name in ("parent", "child"))
    check_numbered(links["link"], [slice(0, len(parents))], "links.parquet", "link")
    is_valid = len(parents) > 0 and is_forest(parents, children, n_variables)
    require(is_valid, "links.parquet", "no forest over the variables with parents before their children")
    edges = []
    for link_id, run in enumerate(runs_of(ratios["link"], len(parents), "ratios.parquet", "link")):
        shape = bin_counts[parents[link_id]], bin_counts[children[link_id]]
        link_ratios, where = _cut(ratios, run), f"link {link_id}: needs one row per pair of bins, in order"
        is_complete = np.array_equal(link_ratios["parent_bin"], np.repeat(np.arange(shape[0]), shape[1]))
        is_complete = is_complete and np.array_equal(link_ratios["child_bin"], np.tile(np.arange(shape[1]), shape[0]))
        require(is_complete and shape[0] * shape[1] > 0, "ratios.parquet", where)
        tables = link_ratios["count"].reshape(shape), link_ratios["ratio"].reshape(shape)
        edges.append(Edge(parents[link_id], children[link_id], float(links["information"][link_id]), *tables))
    return Dependence(bins, tuple(edges))


def _read_bins(cuts: Arrays, n_codes: int) -> Ints:
    """Expand runs of codes to the bin of every code."""
    first_codes, run_bins = _small(cuts["code"], "cuts.parquet"), _small(cuts["bin"], "cuts.parquet")
    is_valid = (
        len(first_codes) > 0
        and first_codes[0] == 0
        and bool(np.all(np.diff(first_codes) > 0))
        and first_codes[-1] < n_codes
    )
    require(is_valid, "cuts.parquet", "bins that do not cut the codes in order")
    require(np.all(run_bins < n_codes), "cuts.parquet", "more bins than codes")
    return np.repeat(run_bins, np.diff(np.append(first_codes, n_codes)))


def _read_columns(fields: list[Any], levels: Arrays) -> tuple[Column, ...]:
    runs = runs_of(levels["column"], len(fields), "levels.parquet", "column")
    parts = [(levels["number"][run], levels["text"][run].tolist()) for run in runs]
    return tuple(parse_column(fields[index], index, *part) for index, part in enumerate(parts))


def _read_variables(fields: list[Any], files: Mapping[str, Arrays]) -> list[Variable]:
    parsed_fields = [
        parse_fields(entry, _VARIABLE, MODEL_JSON, f"variable {variable_id}")
        for variable_id, entry in enumerate(fields)
    ]
    states, tokens, bins = (files[f"{name}.parquet"] for name in ("states", "tokens", "bins"))
    of_states = runs_of(states["variable"], len(fields), "states.parquet", "variable")
    of_tokens = runs_of(tokens["variable"], len(fields), "tokens.parquet", "variable")
    of_bins = runs_of(bins["variable"], len(fields), "bins.parquet", "variable")
    check_numbered(states["state"], of_states, "states.parquet", "state")
    check_numbered(bins["code"], of_bins, "bins.parquet", "code")
    return [
        _read_variable(variable_id, entry, _cut(states, state_run), _cut(tokens, token_run), _cut(bins, bin_run))
        for variable_id, (entry, state_run, token_run, bin_run) in enumerate(
            zip(parsed_fields, of_states, of_tokens, of_bins, strict=True)
        )
    ]


def _read_variable(number: int, fields: dict[str, Any], states: Arrays, tokens: Arrays, bins: Arrays) -> Variable:
    where, members = f"variable {number}", fields["columns"]
    require(
        members and all(type(column_index) is int for column_index in members),
        MODEL_JSON,
        f"{where}: its columns are no numbers",
    )
    code_low, code_high = _small(states["code_low"], "states.parquet"), _small(states["code_high"], "states.parquet")
    is_valid = len(code_low) > 0 and np.all(code_low <= code_high)
    require(is_valid, "states.parquet", f"{where}: no states, or one that ends before it begins")
    edges, segments = _read_edges(where, fields["first_bin"], bool(states["interval"].any()), bins)
    token_table = _read_tokens(where, len(code_low), len(members), tokens)
    return Variable(
        tuple(members), token_table, states["interval"], code_low, code_high, edges, segments, fields["first_bin"]
    )


def _read_tokens(where: str, n: int, members: int, tokens: Arrays) -> Ints:
    is_complete = np.array_equal(tokens["member"], np.repeat(np.arange(members), n))
    is_complete = is_complete and np.array_equal(tokens["state"], np.tile(np.arange(n), members))
    require(is_complete, "tokens.parquet", f"{where}: needs one token per member and state, in order")
    return np.ascontiguousarray(_small(tokens["token"], "tokens.parquet").reshape(members, n).T)


def _read_edges(where: str, first: int, intervals: bool, bins: Arrays) -> tuple[Floats, Floats]:
    """Return the inner bin edges, and the subset at which a new interval begins."""
    edge, border, n_codes = bins["edge"], bins["border"], len(bins["edge"])
    edge_codes = np.flatnonzero(~np.isnan(edge))
    # Variables without intervals have no edges; others have one edge between neighbouring bins.
    expected_codes = np.arange(first, n_codes - 1) if intervals and 0 <= first < n_codes else np.empty(0)
    is_valid = first >= 0 and np.array_equal(edge_codes, expected_codes) and not np.any(border[np.isnan(edge)])
    require(is_valid, "bins.parquet", f"{where}: edges or borders missing or out of order")
    return edge[edge_codes], edge[border]


def _read_histograms(n_variables: int, bins: Arrays) -> list[NDArray[np.int64]]:
    return [bins["rows"][run] for run in runs_of(bins["variable"], n_variables, "bins.parquet", "variable")]


def _read_trees(nodes: Arrays) -> list[Tree]:
    file, tree_ids = "nodes.parquet", nodes["tree"]
    # Trees are not empty, so there are at most as many trees as nodes.
    runs = runs_of(tree_ids, min(int(tree_ids.max(initial=0)) + 1, len(tree_ids)), file, "tree")
    check_numbered(nodes["node"], runs, file, "node")
    thresholds = _small(nodes["threshold"], file)
    trees = []
    for tree_id, run in enumerate(runs):
        feature = nodes["feature"][run]
        children = preorder_children(feature >= 0)
        require(children is not None, file, f"tree {tree_id}: the nodes are no binary tree in preorder")
        assert children is not None
        trees.append(Tree(feature, thresholds[run], *children))
    return trees


def _read_leaves(leaves: Arrays, trees: list[Tree]) -> NDArray[np.int64]:
    leaf_counts = [int((tree.left == LEAF).sum()) for tree in trees]
    is_valid = np.array_equal(leaves["tree"], np.repeat(np.arange(len(trees)), leaf_counts))
    is_valid = is_valid and np.array_equal(leaves["leaf"], np.arange(len(leaves["leaf"])))
    require(is_valid, "leaves.parquet", "leaves that are not those of the trees in nodes.parquet, in order")
    return leaves["rows"]


def _read_entries(variables: list[Variable], files: Mapping[str, Arrays], n_leaves: int) -> list[Entries]:
    discrete, continuous = files["discrete.parquet"], files["continuous.parquet"]
    runs = runs_of(discrete["variable"], len(variables), "discrete.parquet", "variable")
    of_intervals = runs_of(continuous["variable"], len(variables), "continuous.parquet", "variable")
    entries = []
    for number, (variable, discrete_run, interval_run) in enumerate(zip(variables, runs, of_intervals, strict=True)):
        state_counts, interval_moments = _cut(discrete, discrete_run), _cut(continuous, interval_run)
        known_states = np.all(state_counts["state"] < variable.n_states)
        require(known_states, "discrete.parquet", f"variable {number}: unknown states")
        leaf_ids = state_counts["leaf"]
        require(
            not len(leaf_ids) or leaf_ids.max() < n_leaves, "discrete.parquet", f"variable {number}: unknown leaves"
        )
        sorted_ = np.all(leaf_ids[1:] >= leaf_ids[:-1])
        require(sorted_, "discrete.parquet", f"variable {number}: rows that are unsorted or repeated")
        is_interval = variable.interval[state_counts["state"]]
        keys_match = np.array_equal(leaf_ids[is_interval], interval_moments["leaf"])
        keys_match = keys_match and np.array_equal(state_counts["state"][is_interval], interval_moments["state"])
        require(
            keys_match,
            "continuous.parquet",
            f"variable {number}: rows are not those of its intervals in discrete.parquet",
        )
        state = state_counts["state"].astype(smallest_unsigned(variable.n_states))
        rows = state_counts["count"].astype(smallest_unsigned(int(state_counts["count"].max(initial=1))))
        entry_starts = first_entries(leaf_ids, n_leaves)
        entries.append(Entries(entry_starts, state, rows, interval_moments["mu"], interval_moments["sigma"]))
    return entries


def _small(ids: NDArray[np.uint32], file: str) -> Ints:
    require(np.all(ids < 2**31), file, "a number of 2**31 or more")
    return ids.astype(np.int32)


def _cut(arrays: Arrays, run: slice) -> Arrays:
    return {name: values[run] for name, values in arrays.items()}


def runs_of(group: NDArray[np.uint32], n_groups: int, file: str, what: str) -> list[slice]:
    """Return the rows of every group as a slice. Raises if group ids are out of range or unsorted."""
    require(np.all(group[1:] >= group[:-1]), file, f"rows that are not sorted by {what}")
    require(not len(group) or group[-1] < n_groups, file, f"an unknown {what}")
    bounds = np.searchsorted(group, np.arange(n_groups + 1))
    return [slice(int(run_start), int(run_stop)) for run_start, run_stop in pairwise(bounds)]


def check_numbered(ids: NDArray[np.uint32] | NDArray[np.int64], runs: list[slice], file: str, what: str) -> None:
    """Raise unless the ids in every run are 0, 1, 2, ..."""
    run_sizes = np.array([run.stop - run.start for run in runs], dtype=np.int64)
    expected_ids = np.arange(len(ids)) - np.repeat(np.cumsum(run_sizes) - run_sizes, run_sizes)
    require(np.array_equal(ids, expected_ids), file, f"{what}s that are unsorted, missing or repeated")

"""The public tables of a model as Polars frames, and a text summary."""

from __future__ import annotations

import numpy as np
import polars as pl

from arf_dask.forest.fitted import Fitted
from arf_dask.forest.tables import LeafTables
from arf_dask.forest.trees import Tree, leaf_nodes
from arf_dask.runtime.display import count, describe_facts, printable

SHOWN = 4  # maximum number of bundles and identifiers to list


def round_frame(tables: LeafTables) -> pl.DataFrame:
    """One row per round of the adversarial loop: round, accuracy (out of bag), leaves."""
    column_types = {"round": pl.UInt32, "accuracy": pl.Float64, "leaves": pl.UInt32}
    return pl.DataFrame([r._asdict() for r in tables.rounds], schema=column_types)


def node_frame(tables: LeafTables) -> pl.DataFrame:
    """One row per (tree, node): tree, node, feature, threshold, left, right (-1 at leaves)."""
    return pl.concat([_tree_frame(number, tree) for number, tree in enumerate(tables.trees)])


def leaf_frame(tables: LeafTables) -> pl.DataFrame:
    """One row per leaf: leaf, tree, node, rows, coverage (share of the rows of its tree)."""
    leaf_trees = np.repeat(np.arange(len(tables.trees)), np.diff(tables.starts))
    return pl.DataFrame(
        {
            "leaf": np.arange(tables.n_leaves, dtype=np.uint32),
            "tree": leaf_trees.astype(np.uint32),
            "node": np.concatenate([leaf_nodes(t) for t in tables.trees]).astype(np.uint32),
            "rows": tables.coverage.astype(np.uint64),
            "coverage": tables.coverage / tables.schema.n_rows,
        }
    )


def summarise_model(fitted: Fitted) -> str:
    """Summarise a model in a few lines: its size, forest, accuracy, refinement, rules, bundles and identifiers."""
    tables, schema = fitted.tables, fitted.schema
    last_round = tables.rounds[-1]
    rule_texts = [rule.text for rule in fitted.relations.rules if rule.kind not in ("together", "grid")]
    return describe_facts(
        f"Model of {count(schema.n_rows, 'row')} and {count(len(fitted.dtypes), 'column')}",
        {
            "forest": f"{count(len(tables.trees), 'tree')}, {count(tables.n_leaves, 'leaf')}, "
            f"{tables.family}, {tables.support} support",
            "accuracy": f"{last_round.accuracy:.3f} out of bag after {count(len(tables.rounds), 'round')} "
            "(0.5: real and synthetic rows cannot be told apart)",
            "refined": "" if fitted.refinement is None else fitted.refinement.summary,
            "rules": _listed(rule_texts, "; "),
            "bundles": _listed([" + ".join(names) for names in schema.bundles], "; "),
            "keys": _listed(schema.keys, ", "),
        },
    )


def _listed(names: list[str], separator: str) -> str:
    more = [f"and {len(names) - SHOWN:,} more"] if len(names) > SHOWN else []
    return separator.join([*map(printable, names[:SHOWN]), *more])


def _tree_frame(number: int, tree: Tree) -> pl.DataFrame:
    return pl.DataFrame(
        {
            "tree": np.full(len(tree.left), number, dtype=np.uint32),
            "node": np.arange(len(tree.left), dtype=np.uint32),
            "feature": tree.feature,
            "threshold": tree.threshold,
            "left": tree.left,
            "right": tree.right,
        }
    )

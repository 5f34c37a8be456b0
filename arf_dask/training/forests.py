"""The result of adversarial training: a forest on codes, and the schema of these codes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from arf_dask.data.renewal import NO_RENEWAL, Renewal
from arf_dask.forest.dependence_learning import Structure
from arf_dask.forest.tables import Round
from arf_dask.forest.trees import Tree
from arf_dask.options import Options
from arf_dask.rules.relations import NO_RELATIONS, Relations
from arf_dask.runtime.display import TextInNotebooks, count, describe_facts
from arf_dask.schema.columns import Schema


@dataclass(frozen=True, eq=False, repr=False)
class AdversarialForest(TextInNotebooks):
    """The result of adversarial training (Alg. 1): trees on codes, the schema of these codes, and all rounds.

    Examples:
        >>> import arf_dask, polars as pl
        >>> data = pl.DataFrame({"x": [i / 7 for i in range(200)], "y": [i % 9 for i in range(200)]})
        >>> print(arf_dask.adversarial_forest(data, trees=5, seed=1))  # doctest: +ELLIPSIS
        Adversarial forest of 200 rows and 2 columns
          forest    5 trees, ... leaves
          accuracy  ... out of bag, round by round
    """

    schema: Schema
    trees: Sequence[Tree]
    rounds: Sequence[Round]
    options: Options
    seed: int
    structure: Structure  # dependence of variables inside leaves
    relations: Relations = NO_RELATIONS
    renewal: Renewal = NO_RENEWAL  # of columns whose values were replaced before anything was learned

    def __repr__(self) -> str:
        leaves = sum(int((tree.left < 0).sum()) for tree in self.trees)
        title = f"Adversarial forest of {count(self.schema.n_rows, 'row')} and "
        title += count(len(self.relations.names or self.schema.names), "column")
        facts = {
            "forest": f"{count(len(self.trees), 'tree')}, {count(leaves, 'leaf')}",
            "accuracy": ", ".join(f"{one.accuracy:.3f}" for one in self.rounds) + " out of bag, round by round",
        }
        return describe_facts(title, facts)

"""Candidate (row, leaf) pairs: leaves whose boxes overlap the code range of the row in every variable."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from arf_dask.forest.boxes import Boxes
from arf_dask.forest.routing import RoutingTable, route_ranges, route_to_leaves, routing_table
from arf_dask.forest.tables import BATCH_LEAVES, LeafTables
from arf_dask.inference.known_rows import KnownRows, Rows
from arf_dask.inference.tree_batches import TreeBatch
from arf_dask.typing import Ints

MOST_PAIRS = 500_000  # maximum number of pairs in memory at a time (at least those of one row)
BLOCK_ROWS = 16_384  # rows processed at a time; fewer than 2**16
WORD = 64

Bits = NDArray[np.uint64]


class Pairs(NamedTuple):
    """Rows and their candidate leaves in one tree batch, sorted by row."""

    row: Rows
    leaf: NDArray[np.int64]

    def take(self, some: NDArray[np.integer]) -> Pairs:
        """Select pairs by index."""
        return Pairs(self.row[some], self.leaf[some])


class CodeRanges(NamedTuple):
    """The distinct code ranges of rows for one variable."""

    of_row: Ints
    low: Ints
    high: Ints


def code_ranges(known: KnownRows, tables: LeafTables) -> dict[int, CodeRanges]:
    """Return the code ranges by variable index, for variables that are constrained in some row."""
    ranges_found = {}
    for index, n_codes in enumerate(tables.n_codes.tolist()):
        low, high = known.low[:, index], known.high[:, index]
        if ((low > 0) | (high < n_codes - 1)).any():
            range_keys, of_row = np.unique(low.astype(np.int64) * n_codes + high, return_inverse=True)
            parts = (part.astype(np.int32) for part in (of_row, range_keys // n_codes, range_keys % n_codes))
            ranges_found[index] = CodeRanges(*parts)
    return ranges_found


def find_pairs(
    batch: TreeBatch, known: KnownRows, ranges: Mapping[int, CodeRanges], rows: Rows | None = None
) -> Iterator[Pairs]:
    """Yield the candidate leaves in a tree batch for the given rows (ascending; all if None), in blocks of rows."""
    rows = np.flatnonzero(known.possible) if rows is None else rows[known.possible[rows]]
    if known.exact:
        block_rows = max(1, MOST_PAIRS // len(batch.trees))
        routing_tables = [routing_table(tree) for tree in batch.trees]
        for first_row in range(0, len(rows), block_rows):
            yield _route(batch, routing_tables, known, rows[first_row : first_row + block_rows])
    elif batch.n_leaves <= BATCH_LEAVES or len(batch.trees) > 1:
        leaf_sets = {
            index: _leaf_sets(batch.leaves.boxes, index, variable_ranges) for index, variable_ranges in ranges.items()
        }
        for first_row in range(0, len(rows), BLOCK_ROWS):
            yield from _common_leaves(batch.n_leaves, ranges, leaf_sets, rows[first_row : first_row + BLOCK_ROWS])
    else:
        block_rows = max(1, min(BLOCK_ROWS, MOST_PAIRS // batch.n_leaves))
        for first_row in range(0, len(rows), block_rows):
            row_block = rows[first_row : first_row + block_rows]
            row_index, leaf = route_ranges(batch.trees[0], known.low[row_block], known.high[row_block])
            yield Pairs(row_block[row_index], leaf)


def _route(batch: TreeBatch, packed: Sequence[RoutingTable], known: KnownRows, rows: Rows) -> Pairs:
    """Return the pairs of rows whose codes are all known: one leaf per tree."""
    row_codes = known.low[rows].astype(np.uint32)
    tree_leaves = [
        route_to_leaves(table, row_codes) + start for table, start in zip(packed, batch.tree_starts, strict=True)
    ]
    return Pairs(np.repeat(rows, len(batch.trees)), np.stack(tree_leaves, axis=1).ravel().astype(np.int64))


def _leaf_sets(boxes: Boxes, index: int, ranges: CodeRanges) -> Bits:
    """Return, per code range, the set of leaves that it overlaps, as a bit set."""
    box_low, box_high = boxes.low[:, index], boxes.high[:, index]
    is_reached = (box_low[None, :] <= ranges.high[:, None]) & (box_high[None, :] >= ranges.low[:, None])
    return _packed(is_reached)


def _packed(flags: NDArray[np.bool_]) -> Bits:
    """Pack the flags of each row into 64-bit words, padded with zeros."""
    n_flags = flags.shape[1]
    packed_bytes = np.zeros((len(flags), -(-n_flags // WORD) * (WORD // 8)), dtype=np.uint8)
    packed_bytes[:, : -(-n_flags // 8)] = np.packbits(flags, axis=1)
    return packed_bytes.view(np.uint64)


def _common_leaves(
    n_leaves: int, ranges: Mapping[int, CodeRanges], sets: Mapping[int, Bits], rows: Rows
) -> Iterator[Pairs]:
    """Yield pairs of rows and the leaves that all of their code ranges overlap."""
    common_bits: Bits | None = None
    for index, variable_ranges in ranges.items():
        variable_bits = sets[index].take(variable_ranges.of_row[rows], axis=0)
        common_bits = (
            variable_bits if common_bits is None else np.bitwise_and(common_bits, variable_bits, out=common_bits)
        )
    if common_bits is None:
        common_bits = np.tile(_packed(np.ones((1, n_leaves), dtype=bool)), (len(rows), 1))
    pair_counts = np.cumsum(np.bitwise_count(common_bits).sum(axis=1, dtype=np.int64))
    first_row = 0
    while first_row < len(rows):
        pairs_before = int(pair_counts[first_row - 1]) if first_row else 0
        stop_row = max(first_row + 1, int(np.searchsorted(pair_counts, pairs_before + MOST_PAIRS, side="right")))
        yield _unpack(common_bits[first_row:stop_row], rows[first_row:stop_row])
        first_row = stop_row


def _unpack(bits: Bits, rows: Rows) -> Pairs:
    n_words = bits.shape[1]
    filled_words = np.flatnonzero(bits)
    bit_flags = np.unpackbits(bits.ravel()[filled_words].view(np.uint8))
    set_bits = np.flatnonzero(bit_flags)
    word_index = filled_words[set_bits >> 6]
    row_index = word_index // n_words
    return Pairs(rows[row_index], (word_index - row_index * n_words) * WORD + (set_bits & 63))

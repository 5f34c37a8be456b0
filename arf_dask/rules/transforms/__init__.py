"""Transforms: what is modelled in the place of a column of the user's table, one module per kind.

To add one, write a module with a subclass of `Transform` and add it to `TRANSFORMS`.
"""

from arf_dask.rules.transforms.base import Resolved, Transform, in_order
from arf_dask.rules.transforms.chain import Chain
from arf_dask.rules.transforms.decimals import Decimals
from arf_dask.rules.transforms.formula import Computed, Stated
from arf_dask.rules.transforms.gap import ClockGap, Gap
from arf_dask.rules.transforms.granular import Granular
from arf_dask.rules.transforms.grid import Indexed
from arf_dask.rules.transforms.hours import Hourless
from arf_dask.rules.transforms.level import Level
from arf_dask.rules.transforms.number_texts import Numbered
from arf_dask.rules.transforms.texts import Parsed
from arf_dask.rules.transforms.times import Timed

__all__ = ["TRANSFORMS", "Resolved", "Transform", "in_order"]

# The kinds of transforms by their names in model files.
TRANSFORMS: dict[str, type[Transform]] = {
    one.kind: one
    for one in (
        Computed,
        Stated,
        Gap,
        ClockGap,
        Indexed,
        Decimals,
        Granular,
        Parsed,
        Numbered,
        Hourless,
        Timed,
        Chain,
        Level,
    )
}

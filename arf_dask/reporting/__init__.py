"""The report on a synthetic table: its fidelity to the real table, and what privacy attacks reveal.

Pure functions of Polars frames. The function that fits shadow models is injected (`Refit`), so that this package
depends only on data and seeds; `arf_dask.reports` connects it with models.
"""

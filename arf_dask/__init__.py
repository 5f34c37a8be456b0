"""Synthetic tables from adversarial random forests."""

from arf_dask.api import fit, synthesize

__all__ = ["fit", "synthesize"]

"""Conditions, densities, expectations, drawing and imputation."""

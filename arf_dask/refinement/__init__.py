"""The last adversary: a boosted ratio of real and model density, by which rows are accepted and densities corrected."""

"""Differential privacy: declared domains, noisy counts of rows, and models learned from nothing else."""

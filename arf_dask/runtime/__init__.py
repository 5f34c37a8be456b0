"""Repeatable execution: tasks on threads or a Dask cluster, seeds, progress display, durable files."""

"""Reading data of any kind, and profiling single columns."""

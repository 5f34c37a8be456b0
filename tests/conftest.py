"""Hypothesis: the same examples in every run, on machines of any speed."""

from hypothesis import settings

settings.register_profile("steady", derandomize=True, deadline=None, database=None)
settings.load_profile("steady")

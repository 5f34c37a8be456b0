"""Profiles of Hypothesis.

"steady" (the default) runs the same examples every time, on machines of any speed, and shows a failure as it was drawn:
shrinking frames takes many minutes. "long" draws new random examples, twenty times as many, and shrinks what fails:
choose it with `make test-long`, or by the variable HYPOTHESIS_PROFILE. A failure prints the code that repeats it.
"""

import os

from hypothesis import Phase, settings

PROFILE = os.environ.get("HYPOTHESIS_PROFILE", "steady")
LONG_FACTOR = 20


def examples(n: int) -> int:
    """Return the number of examples of a test that has `n` of them in the steady profile."""
    return n * LONG_FACTOR if PROFILE == "long" else n


def load_profile() -> None:
    """Make the chosen profile the default of all tests."""
    settings.register_profile(
        "steady",
        derandomize=True,
        deadline=None,
        database=None,
        phases=[Phase.explicit, Phase.generate],
        print_blob=True,
    )
    settings.register_profile("long", deadline=None, database=None, max_examples=examples(100), print_blob=True)
    settings.load_profile(PROFILE)

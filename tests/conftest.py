"""Hypothesis: the same examples in every run, on machines of any speed. Ctrl-C works however tests were started."""

import signal

from hypothesis import settings

settings.register_profile("steady", derandomize=True, deadline=None, database=None)
settings.load_profile("steady")

# Started in the background of a shell, a process and all its children ignore Ctrl-C, which some tests send.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

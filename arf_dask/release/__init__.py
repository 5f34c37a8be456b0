"""Releases: protect the data before fitting, redraw copies, and check limits before publishing."""

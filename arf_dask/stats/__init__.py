"""Numerical routines in pure NumPy: truncated normals, moment matching, Sinkhorn scaling and spanning trees."""

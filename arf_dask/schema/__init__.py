"""The schema of a model: column bundles, number lines, and the encoding of values as codes."""

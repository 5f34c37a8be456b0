"""The stages of `fit`, from opened data to leaf parameters."""

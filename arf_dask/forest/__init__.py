"""Trees, adversarial training, leaf sums, leaf parameters and the tables of a model."""

"""From a few labelled examples to predictions: the interface for practitioners."""

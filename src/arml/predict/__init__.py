"""From a few labelled examples to predictions: what a practitioner calls."""

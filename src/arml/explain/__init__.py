"""Look inside a trained learner: ARML's meta-knowledge graph, or what your own method shows."""

"""Predictors and metric learners as ONNX files, which run without JAX: on a phone, in a browser.

A file computes the same as JAX: `convert` turns a traced function into ONNX operators one by
one, so every method can be written whose operators are in its table. `pictures` makes pictures of
any size those of the learner, `write` puts the parts together.
"""

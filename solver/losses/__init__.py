"""Smooth losses of pairs: logistic, squared and softmax over all pairs, and logistic over listed ones."""

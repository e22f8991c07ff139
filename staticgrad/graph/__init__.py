"""Graphs: the table of ops, nodes and tensors, their names, scopes, texts and pictures."""

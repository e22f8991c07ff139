"""Ops that compute each element from the elements at the same place; each is one declaration (see ``entry``)."""

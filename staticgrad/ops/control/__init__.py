"""Control flow: ops that run a graph of their own, once for each turn (``loops``) or not at all (``branches``).

An op's operands are all that its bodies read (``bodies``).
"""

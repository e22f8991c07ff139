"""Neural ops over rows: softmax, normalisations, embedding, attention.

Each is one named op whose expansion consists of reductions that keep their axes and of broadcasting elementwise ops,
so that it fuses into one loop nest, and so does its backward. Derivatives are closed forms where these are shorter
than what the expansion would give.
"""

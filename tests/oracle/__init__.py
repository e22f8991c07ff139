"""The retention oracle: random programs and scripts, answered once by PyTorch and replayed without it."""

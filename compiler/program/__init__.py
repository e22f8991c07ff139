"""A program as a value: steps, loops, slots, their order and their costs."""

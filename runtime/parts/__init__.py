"""The runtime's parts in machine code: locks, threads, interrupts, entries, results."""

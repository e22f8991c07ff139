"""Sessions, executables, tapes, and the compiler that they ask."""

"""Program in, answers out: sessions, executables, tapes, state."""

"""Programs out of the process: executables come in, files go out that run where there is no compiler and no Python."""

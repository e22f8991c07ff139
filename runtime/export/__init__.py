"""Programs out of the process: executables come in, files go out that run where there is no compiler and no Python.

interface   what is known of an exported program: entries, their arrays, the state that they share
entries     the LLVM text of the C functions around the programs
header      the C header, casadi the functions by which CasADi loads a program
export      executables to files, by format
program_file, loaded   the file that Python loads with NumPy alone, and what it becomes; sharing its state's lock
"""

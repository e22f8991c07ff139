"""Stan programs: read, evaluated with their data, declared as log densities."""

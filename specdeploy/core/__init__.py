"""Pure records and arithmetic: no files, processes, clock, randomness or printing."""

"""The demo: one pair through every command, then both arms measured side by side."""

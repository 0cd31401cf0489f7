"""The joint search: every setting at once, and what the answer depends on."""

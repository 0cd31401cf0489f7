"""Every side effect of the program; each module is reached through a port."""

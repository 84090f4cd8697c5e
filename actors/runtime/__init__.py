"""One interface, three runtimes: ray (processes), inproc (one event loop), sim (virtual time)."""

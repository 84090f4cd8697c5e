"""Interceptors: plug-ins that see the records of topics that ask for them, on the broker."""

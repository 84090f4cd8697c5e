"""Interceptors: plug-ins that process the records of topics on the broker."""

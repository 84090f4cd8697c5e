"""Locust users that load a cluster and count a wrong answer as a failure."""

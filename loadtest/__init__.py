"""Load tests: Locust users that load a cluster and count wrong answers as failures."""

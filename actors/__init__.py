"""Brokers, replicas, the controller and coordinators: pure state machines and their shells."""

"""Brokers, replicas, controller and coordinators: machines that decide, shells that act."""

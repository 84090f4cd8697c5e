"""Kinds of workers: threads, processes, asyncio tasks, Ray actors."""

"""Simulations whose records are deleted by age or by request, or compacted."""

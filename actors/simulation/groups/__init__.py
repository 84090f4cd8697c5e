"""Simulations whose clients are members of groups, and topics that are deleted and made again."""

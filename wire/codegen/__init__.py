"""Generates the Python source of codecs: a decoder and an encoder per message and version."""

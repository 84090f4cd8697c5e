"""Python source for codecs: one decoder and one encoder for each (message, version)."""

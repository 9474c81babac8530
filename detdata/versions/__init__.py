"""Dataset versions: what the data is, as a list of files with digests and one digest of it all."""

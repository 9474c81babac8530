"""The exit codes of every command."""

SAME, DIFFERENT, CANNOT_TELL, INTERRUPTED = 0, 1, 2, 130

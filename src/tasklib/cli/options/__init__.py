"""Options of commands: those that several share, those of large commands, and typed values."""

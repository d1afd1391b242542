"""What commands are told: options that several share, those of large commands, and typed values."""

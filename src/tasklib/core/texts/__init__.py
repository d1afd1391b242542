"""Short texts for people: of errors and of ids."""

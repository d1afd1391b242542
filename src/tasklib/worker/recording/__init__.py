"""What became of attempts: their ends written to the database, counted, and logged."""

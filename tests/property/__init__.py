"""What holds for every story, not only for those somebody thought of."""

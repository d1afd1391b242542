"""What holds on every database and in both forms: one suite defines tasklib's behaviour."""

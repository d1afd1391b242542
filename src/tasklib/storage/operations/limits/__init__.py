"""What holds tasks back across all workers: pauses, limits of names, and concurrency keys."""

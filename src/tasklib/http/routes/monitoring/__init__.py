"""Routes that show how the queue is doing: health, metrics, series, findings, errors, scale."""

"""What a worker does beside running tasks: heartbeats, leases, recovery, retention, schedules and metrics."""

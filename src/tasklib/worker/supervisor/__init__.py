"""Several worker processes under one command, restarted when they die."""

"""What every request passes: the guard of the service, who may do it, and the audit log."""

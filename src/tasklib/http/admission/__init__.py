"""What every request passes: the guard of the service, authorization, and the audit log."""

"""Pages of the service itself: the dashboard, and the form that asks for a token."""

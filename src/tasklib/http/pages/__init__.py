"""The pages that the service has itself: the dashboard, and the one that asks for a token."""

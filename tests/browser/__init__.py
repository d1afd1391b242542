"""The dashboard as a person sees it."""

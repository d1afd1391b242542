"""The migrations of our tables, as `manage.py migrate` runs them."""

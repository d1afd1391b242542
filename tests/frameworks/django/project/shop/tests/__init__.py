"""The tests of the shop, run by `manage.py test`."""

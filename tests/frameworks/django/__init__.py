"""A Django project that uses tasklib, driven from outside."""

"""Workflows as front ends see and start them."""

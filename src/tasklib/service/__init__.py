"""The only door for front ends: HTTP, the command line and the doctor show and do through it."""

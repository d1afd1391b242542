"""What front ends use: HTTP, the command line and the doctor read and change a queue only through it."""

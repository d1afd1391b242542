"""What is sent and answered."""

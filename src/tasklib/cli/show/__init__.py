"""What commands say: text and tables for people, JSON for programs."""

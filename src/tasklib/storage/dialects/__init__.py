"""What is each database's own: how statements are written for its drivers, and what its errors mean."""

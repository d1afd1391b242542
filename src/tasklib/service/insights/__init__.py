"""What people are shown about a queue as a whole: lanes of what ran, objectives, reports."""

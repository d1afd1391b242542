"""What the statements cost as the table grows: counted in pages and steps, never in seconds."""

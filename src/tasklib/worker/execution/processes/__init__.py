"""Child processes for tasks: started, fed, limited and ended."""

"""Getting tasks: when to claim, how many, and what is held until it ends."""

"""What surrounds a call of a task's function: its context, middleware, and what it may raise or cancel."""

"""The queue for agents, over the Model Context Protocol: tools to look at it and, if allowed, to act on it."""

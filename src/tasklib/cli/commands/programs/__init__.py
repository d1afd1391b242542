"""Commands that run until they are stopped, or examine the whole queue: worker, service, MCP, doctor, bench."""

"""Commands that go on until they are stopped, or examine the whole: worker, service, MCP, doctor, bench."""

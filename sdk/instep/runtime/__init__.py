"""The asyncio runtime: the only place with tasks and clocks."""

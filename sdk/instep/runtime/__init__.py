"""The asyncio runtime: the only package with tasks and clocks."""

"""The durable inbox and outbox of numbered messages."""
